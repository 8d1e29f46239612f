import pytest
import torch

from orthosparse.lab.data import load
from orthosparse.lab.training.ensemble import Step, Ways, ensemble_of, start_of
from orthosparse.lab.training.ensemble.state import Records

CPU = torch.device("cpu")


def made(members, ways=None):
    data = load("digits")
    starts = [start_of(config, seed, data, CPU, None) for config, seed in members]
    ensemble, _ = ensemble_of(members, starts, data, CPU, ways or Ways())
    ensemble.set_rate()
    return ensemble


def trained(ensemble, step, steps):
    for _, batch in zip(range(steps), ensemble.feed.epoch(0), strict=False):
        step(*batch)
    return [ensemble.state_of(member) for member in range(len(ensemble.configs))]


class Recorded:
    """Works like a captured graph: always on the tensors that it saw first."""

    def __init__(self, step):
        self.step, self.seen = step, []

    def __call__(self):
        self.seen.append((self.step._images.data_ptr(), self.step._labels.data_ptr()))
        self.step._captured()


def test_a_graph_would_find_every_batch_in_the_same_place(four):
    eager, graphed = made(four()), made(four())
    expected = trained(eager, Step(eager, Ways()), 13)
    step = Step(graphed, Ways())
    step._graphed = Recorded(step)
    places = [leaf.value.data_ptr() for slab in graphed.slabs for leaf in slab.leaves]
    found = trained(graphed, step, 13)
    assert len(step._graphed.seen) == 12, "the last, shorter batch is not for the graph"
    assert len(set(step._graphed.seen)) == 1
    assert places == [leaf.value.data_ptr() for slab in graphed.slabs for leaf in slab.leaves]
    for mine, theirs in zip(found, expected, strict=True):
        assert all(torch.equal(mine[name], value) for name, value in theirs.items())
    assert torch.equal(graphed.records.values, eager.records.values)


def test_weights_off_the_masks_stay_zero_and_momentum_too(four):
    ensemble = made(four())
    trained(ensemble, Step(ensemble, Ways()), 5)
    for slab in ensemble.slabs:
        assert int(slab.weight.off.sum()) > 0
        assert not slab.weight.value[slab.weight.off].any()
        assert not slab.weight.momentum[slab.weight.off].any()


def test_a_graph_needs_a_gpu(deep):
    with pytest.raises(ValueError, match="graph: expected a GPU; got cpu"):
        Step(made([(deep(), 1)]), Ways(), graph=True)


def test_records_note_the_first_bad_step_of_each_member_and_keep_it():
    records = Records(3, 4, CPU)
    bad, good = torch.inf, 1.0
    for losses, norms in (
        ([good] * 4, [good] * 4),
        ([good, bad, good, good], [good, good, torch.nan, good]),
        ([bad, good, good, good], [good] * 4),
        ([good] * 4, [bad, bad, bad, good]),
    ):
        records.add(torch.tensor(losses), torch.tensor(norms), torch.zeros(4))
    assert records.stopped.tolist() == [2, 1, 1, -1]
    assert records.alive.tolist() == [False, False, False, True]
    assert int(records.clock) == 4
    assert records.values[0, 0].tolist() == [1.0] * 4  # the fourth step is the first of the next epoch
