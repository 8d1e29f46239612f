import torch

from orthosparse.lab.training.state import Records

CPU = torch.device("cpu")


def _add(records, *values):
    records.add(*(torch.tensor([value]) for value in values))


def test_steps_are_noted_in_order():
    records = Records(3, 1, CPU)
    _add(records, 1.5, 0.1, 7)
    _add(records, 2.5, 0.2, 8)
    torch.testing.assert_close(records.values[..., 0], torch.tensor([[1.5, 2.5, 0], [0.1, 0.2, 0], [7, 8, 0]]))


def test_addresses_stay_so_that_a_graph_may_hold_them():
    records = Records(2, 1, CPU)
    tensors = (records.values, records.alive, records.stopped, records.clock)
    before = [tensor.data_ptr() for tensor in tensors]
    for _ in range(3):
        _add(records, 1.0, 1.0, 1)
    assert [each.data_ptr() for each in (records.values, records.alive, records.stopped, records.clock)] == before


def test_records_note_the_first_bad_step_of_each_network_and_keep_it():
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
