import pytest
import torch

from contracts.states import assert_same
from orthosparse.lab.data import load
from orthosparse.lab.training import launch
from orthosparse.lab.training.stacked.assembly import stack_of
from orthosparse.lab.training.starts import start_of
from orthosparse.lab.training.step import Stepper

CPU = torch.device("cpu")


def made(pairs):
    data = load("digits")
    starts = [start_of(run, seed, data, CPU, None) for run, seed in pairs]
    state = stack_of(pairs, starts, data, launch(device="cpu", precision="fp64"))
    state.set_rate()
    return state


def trained(state, stepper, steps):
    for _, batch in zip(range(steps), state.loader.epoch(0), strict=False):
        stepper(*batch)
    return [state.networks.state_of(place) for place in range(state.networks.count)]


class Recorded:
    """Works like a captured graph: always on the tensors that it saw first."""

    def __init__(self, stepper):
        self.stepper, self.seen = stepper, []

    def __call__(self):
        self.seen.append((self.stepper._images.data_ptr(), self.stepper._labels.data_ptr()))
        self.stepper._captured()


def test_a_graph_would_find_every_batch_in_the_same_place(four):
    eager, graphed = made(four()), made(four())
    expected = trained(eager, Stepper(eager), 13)
    stepper, slabs = Stepper(graphed), graphed.networks.slabs
    stepper._graphed = Recorded(stepper)
    places = [leaf.value.data_ptr() for slab in slabs for leaf in slab.leaves]
    found = trained(graphed, stepper, 13)
    assert len(stepper._graphed.seen) == 12, "the last, shorter batch is not for the graph"
    assert len(set(stepper._graphed.seen)) == 1
    assert places == [leaf.value.data_ptr() for slab in slabs for leaf in slab.leaves]
    for mine, theirs in zip(found, expected, strict=True):
        assert_same(mine, theirs)
    assert torch.equal(graphed.records.values, eager.records.values)


def test_weights_off_the_masks_stay_zero_and_momentum_too(four):
    state = made(four())
    trained(state, Stepper(state), 5)
    for slab in state.networks.slabs:
        assert int(slab.weight.off.sum()) > 0
        assert not slab.weight.value[slab.weight.off].any()
        assert not slab.weight.momentum[slab.weight.off].any()


def test_a_graph_needs_a_gpu(deep):
    with pytest.raises(ValueError, match="graph: expected a single GPU and sgd or adamw; got cpu"):
        Stepper(made([(deep(), 1)]), graph=True)
