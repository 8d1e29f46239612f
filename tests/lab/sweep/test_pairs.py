import pytest

from orthosparse.lab.experiments.mask_picture import MaskPicture
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.sweep.pairs import Pair, Task

PAIRS = tuple(Pair(Training("mlp", "digits", density=0.5), seed) for seed in (1, 2))


@pytest.mark.parametrize("seed", [2**63, -(2**63), 99999999999999999999999])
def test_a_seed_that_no_store_can_hold_is_refused(seed):
    with pytest.raises(ValueError, match=f"seed: expected a whole number below 2\\*\\*63; got {seed}"):
        Pair(MaskPicture("eoi"), seed)


def test_a_task_of_one_pair_has_its_folder_and_a_stack_one_that_no_order_changes():
    assert Task(PAIRS[:1], PAIRS[:1]).folder == PAIRS[0].folder
    stacks = {Task(pairs, pairs, stacked=True).folder for pairs in (PAIRS, PAIRS[::-1])}
    assert len(stacks) == 1
    assert stacks.isdisjoint({Task(PAIRS[:1], PAIRS[:1], stacked=True).folder, PAIRS[0].folder})


def test_a_task_is_called_by_its_first_pair():
    assert str(Task(PAIRS[:1], PAIRS[:1])) == str(PAIRS[0])
    assert str(Task(PAIRS, PAIRS, stacked=True)) == f"{PAIRS[0]} and 1 more"
