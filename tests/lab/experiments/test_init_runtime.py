import pytest
import torch

import orthosparse
from orthosparse.lab.experiments.init_runtime import InitRuntime


def test_the_runtime_after_the_first_epoch_is_the_sum_of_its_parts():
    small = {"model_options": {"depth": 3, "width": 16}, "batch": 64}
    metrics = InitRuntime("mlp", "digits", "snip", "eoi", 0.5, **small).run(1, device="cpu")
    parts = [metrics[f"{part}_seconds"] for part in ("setup", "sparsify", "epoch")]
    assert all(part > 0 for part in parts)
    assert metrics["seconds"] == pytest.approx(sum(parts))


def test_the_first_of_a_distribution_is_preceded_by_an_untimed_base_start(monkeypatch):
    seen = []
    whole = orthosparse.sparsify

    def sparsify(model, density, *, scheme, **others):
        seen.append((others["distribution"], scheme, others.get("device")))
        return whole(model, density, scheme=scheme, **others)

    monkeypatch.setattr(orthosparse, "sparsify", sparsify)
    small = {"model_options": {"depth": 2, "width": 24}, "batch": 512}
    InitRuntime("mlp", "digits", "erk", "eoi", 0.5, **small).run(1, device="cpu")
    InitRuntime("mlp", "digits", "erk", "ai", 0.5, options={"iterations": 2}, **small).run(1, device="cpu")
    cpu = torch.device("cpu")
    assert seen == [("erk", "base", None), ("erk", "eoi", None), ("erk", "ai", cpu)]
