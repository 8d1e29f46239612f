import pytest

from orthosparse.lab.experiments import InitRuntime


def test_the_runtime_after_the_first_epoch_is_the_sum_of_its_parts():
    small = {"model_options": {"depth": 3, "width": 16}, "batch": 64}
    metrics = InitRuntime("mlp", "digits", "snip", "eoi", 0.5, **small).run(1, device="cpu")
    parts = [metrics[f"{part}_seconds"] for part in ("setup", "sparsify", "epoch")]
    assert all(part > 0 for part in parts)
    assert metrics["seconds"] == pytest.approx(sum(parts))
