import pytest

from orthosparse.lab.training.ensemble.alike import check_alike, shape_of, why_not


def test_starts_densities_and_schemes_do_not_set_runs_apart(deep):
    first = shape_of(deep())
    others = [
        deep(density=0.1, distribution="snip", scheme="ai", options={"iterations": 3}),
        deep(density=0.1, floor="partial", exclude=("fc1",), score_batches=2),
        deep(dense_init="default", gain=1.0, bias_std=0.0),
        deep(density=0.1, dynamic="rigl", every=7, fraction=0.3, until=0.5),
    ]
    assert all(shape_of(other) == first for other in others)


@pytest.mark.parametrize(
    "change",
    [
        {"depth": 9},
        {"activation": "relu"},
        {"lr": 0.1},
        {"epochs": 3},
        {"validation": False},
        {"batch": 10},
        {"precision": "tf32"},
    ],
)
def test_shapes_data_and_recipes_do(deep, change):
    assert shape_of(deep(**change)) != shape_of(deep())
    with pytest.raises(ValueError, match="members: expected one shape, data set and recipe; member 1 differs in"):
        check_alike([deep(), deep(**change)])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"optimizer": "adamw"}, "optimizer: expected sgd"),
        ({"mixup": 0.2}, "mixup: expected 0"),
        ({"clip": 1.0}, "clip: expected 0"),
        ({"accumulate": 2}, "accumulate: expected 1"),
        ({"loss": "bce"}, "loss: expected cross_entropy"),
    ],
)
def test_what_an_ensemble_cannot_do_is_said(deep, change, reason):
    assert why_not(deep(**change)).startswith(reason)
    with pytest.raises(ValueError, match=reason):
        shape_of(deep(**change))
