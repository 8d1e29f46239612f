import pytest
import torch

from orthosparse import SCHEMES, givens
from orthosparse.lab.experiments.efficiency import Efficiency


@pytest.mark.parametrize("method", ["eoi", "sao"])
def test_exact_methods_are_orthogonal_at_the_rounding_of_float32(method):
    metrics = Efficiency(method, 64, 0.125).run(1, device="cpu")
    assert metrics["orthogonality"] < 2e-6
    assert metrics["density"] == 0.125
    assert 0 < metrics["fastest_seconds"] <= metrics["seconds"]
    assert metrics["threads"] == torch.get_num_threads()


def test_ai_is_timed_with_its_iterations_and_comes_closer_with_more():
    few, many = (Efficiency("ai", 32, 0.25, iterations=count).run(1, device="cpu") for count in (2, 400))
    assert many["orthogonality"] < few["orthogonality"]
    assert many["seconds"] > few["seconds"]
    assert (few["iterations"], few["density"]) == (2, 0.25)


def test_plain_ai_never_stops_early(monkeypatch):
    ai, seen = SCHEMES["ai"], []

    def watched(*given, **options):
        seen.append(options.get("tolerance"))
        return ai(*given, **options)

    monkeypatch.setitem(SCHEMES, "ai", watched)
    for method in ("ai", "ai-plain"):
        Efficiency(method, 16, 0.25, iterations=2).run(1, device="cpu")
    assert set(seen) == {None, 0.0}
    assert Efficiency("ai", 16, 0.25) != Efficiency("ai-plain", 16, 0.25)


def test_sao_takes_the_nearest_density_that_it_can_and_says_which():
    assert Efficiency("sao", 64, 0.1).run(1, device="cpu")["density"] == 0.125


def test_the_cost_model_is_a_copy_and_a_count_for_every_rotation_and_no_time_of_a_sampler():
    metrics = Efficiency("released-cost-model", 256, 0.125).run(1, device="cpu")
    assert metrics["rotations"] == givens.expected_rotations(256, 256, 0.125)
    assert metrics["modelled_seconds"] == pytest.approx(metrics["rotations"] * metrics["seconds_per_rotation"])
    assert "seconds" not in metrics
    assert "orthogonality" not in metrics


def test_an_unknown_method_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="method: expected one of ai, ai-plain, eoi, released-cost-model, sao"):
        Efficiency("qr", 64, 0.1)
