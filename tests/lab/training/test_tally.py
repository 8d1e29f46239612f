import torch

from orthosparse.lab.training.tally import Tally


def _add(tally, *values):
    tally.add(*(torch.tensor(value) for value in values))


def test_steps_are_noted_in_order():
    tally = Tally(3, torch.device("cpu"))
    _add(tally, 1.5, 0.1, 7)
    _add(tally, 2.5, 0.2, 8)
    torch.testing.assert_close(tally.values, torch.tensor([[1.5, 2.5, 0], [0.1, 0.2, 0], [7, 8, 0]]))


def test_a_tally_goes_on_after_what_it_was_given():
    tally = Tally(3, torch.device("cpu"))
    tally.reset(torch.tensor([[1.0, 2.0], [0.0, 0.0], [3.0, 4.0]]))
    _add(tally, 5.0, 0.0, 6)
    assert tally.values[0].tolist() == [1, 2, 5]
    tally.reset()
    assert not tally.values.any()


def test_addresses_stay_so_that_a_graph_may_hold_them():
    tally = Tally(2, torch.device("cpu"))
    before = tally.values.data_ptr(), tally._next.data_ptr()
    _add(tally, 1.0, 1.0, 1)
    tally.reset(torch.ones(3, 1))
    assert (tally.values.data_ptr(), tally._next.data_ptr()) == before
