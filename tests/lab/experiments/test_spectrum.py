import pytest

from orthosparse.lab.data import load
from orthosparse.lab.experiments import Spectrum
from orthosparse.lab.spectra import study


def small(**fields):
    given = {"activation": "tanh", "distribution": "snip", "scheme": "eoi", "density": 0.3}
    return Spectrum(**{**given, "data": "digits", **fields})


@pytest.mark.parametrize("scheme", ["base", "ai", "eoi"])
def test_the_statistics_are_those_of_the_study(scheme):
    spectrum = small(scheme=scheme, iterations=40).run(2, device="cpu")
    point = study.Experiment("tanh", "snip", scheme, 0.3, ai_iterations=40 if scheme == "ai" else 0)
    measured = study.measure(point, study.batch_of(load("digits"), 2), 2)
    for name in ("mean", "max", "min", "std", "got", "worst_orthogonality"):
        assert spectrum[name] == pytest.approx(measured[name]), name


def test_a_dense_linear_start_is_an_isometry_and_its_quantiles_say_so():
    metrics = small(activation="linear", distribution="uniform", density=1.0, model_options={"width": 32}).run(
        1, device="cpu"
    )
    assert metrics["curves"]["quantiles"] == pytest.approx([1.0] * 101, abs=1e-5)
    assert metrics["values"] == 128 * 10


def test_quantiles_rise_from_the_smallest_to_the_largest():
    metrics = small(scheme="base").run(1, device="cpu")
    quantiles = metrics["curves"]["quantiles"]
    assert quantiles == sorted(quantiles)
    assert (quantiles[0], quantiles[-1]) == pytest.approx((metrics["min"], metrics["max"]))
