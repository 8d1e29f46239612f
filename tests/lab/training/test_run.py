import pytest

from orthosparse.lab.training.run import check_stackable, stack_key, why_not_stacked


def test_starts_densities_and_schemes_do_not_set_runs_apart(deep):
    first = stack_key(deep())
    others = [
        deep(density=0.1, distribution="snip", scheme="ai", options={"iterations": 3}),
        deep(density=0.1, floor="partial", exclude=("fc1",), score_batches=2),
        deep(dense_init="default", gain=1.0, bias_std=0.0),
        deep(density=0.1, dynamic="rigl", every=7, fraction=0.3, until=0.5),
    ]
    assert all(stack_key(other) == first for other in others)


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
    assert stack_key(deep(**change)) != stack_key(deep())
    with pytest.raises(ValueError, match="pairs: expected one shape, data set and recipe; number 1 differs in"):
        check_stackable([deep(), deep(**change)])


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
def test_what_a_stack_cannot_do_is_said(deep, change, reason):
    assert why_not_stacked(deep(**change)).startswith(reason)
    with pytest.raises(ValueError, match=reason):
        stack_key(deep(**change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"floor": "lift"}, "floor: expected one of .*; got 'lift'"),
        ({"every": 0}, "every: expected a positive integer; got 0"),
        ({"every": 2.5}, "every: expected a positive integer; got 2.5"),
        ({"fraction": 1.5}, "fraction: expected a number in"),
        ({"until": -0.1}, "until: expected a number in"),
        ({"density": "0.1"}, "density: expected a number in .*; got '0.1'"),
    ],
)
def test_what_no_run_can_have_is_refused_before_anything_is_read(deep, change, message):
    with pytest.raises(ValueError, match=message):
        deep(**{"density": 0.1, "dynamic": "rigl", **change})
