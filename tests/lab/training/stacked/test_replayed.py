"""Steps whose operations are noted once and then repeated without Python, as a CUDA graph does, against eager ones."""

import dataclasses

import pytest

from contracts.states import assert_same
from lab.training.recorded import Recorded
from orthosparse.lab.training import loop, train_many
from orthosparse.lab.training.step import Stepper


def replaying(graphs):
    """Return a kind of `Stepper` by such graphs, which adds them to a list."""

    class Replaying(Stepper):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self._graphed = Recorded(self._captured)
            graphs.append(self._graphed)

    return Replaying


def small(deep):
    return [(deep(density=0.3), 1), (deep(), 2)]


def moving(deep):
    sparse = {"density": 0.3, "every": 7}
    kinds = [{"dynamic": "rigl"}, {"dynamic": "set", "scheme": "base"}, {}]
    return [(deep(**sparse, **kind), seed) for seed, kind in enumerate(kinds)]


def residual(deep, **changes):
    shared = {"model": "resnet32", "batch": 20, "epochs": 3, "dense_init": "conv_orthogonal", "schedule": "constant"}
    return [(dataclasses.replace(deep(density=0.3, **shared, **changes), model_options={}), 1)]


def residual_moving(deep):
    return residual(deep, dynamic="rigl", every=3, until=1.0)


@pytest.mark.parametrize("members", [small, moving, residual, residual_moving])
def test_steps_that_are_replayed_train_to_the_bits_of_eager_ones(members, deep, kept, request, monkeypatch):
    if members in (residual, residual_moving):
        request.getfixturevalue("few_digits")
    eager = train_many(members(deep), device="cpu")
    expected = kept.weights()
    graphs = []
    monkeypatch.setattr(loop, "Stepper", replaying(graphs))
    replayed = train_many(members(deep), device="cpu")
    (graph,) = graphs
    assert graph.replays >= 4
    for mine, theirs in zip(kept.weights(), expected, strict=True):
        assert_same(mine, theirs)
    assert [each["test_loss"] for each in replayed] == [each["test_loss"] for each in eager]
