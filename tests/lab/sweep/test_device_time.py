import pytest
from sweep_toys import timed_row

from orthosparse.lab.experiments.mask_picture import MaskPicture
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.sweep.device_time import device_seconds

PICTURE, RESNET = MaskPicture("sao"), Training("resnet32", "cifar10")


@pytest.mark.parametrize(
    ("ends", "seconds"),
    [
        ([9, 10, 11, 12, 20, 28, 36], 10 + 6 * 1),  # three epochs alone, three beside others
        ([9, 17, 25, 33, 34, 35, 36], 10 + 6 * 1),
        ([9, 11, 13, 15], 31 + 3 * 2),
        ([30, 60, 90], 60),  # resumed: the row has the time of the last call alone
        ([9, 10], 37),
        ([9, None, 11], 37),
    ],
)
def test_epochs_beside_other_work_are_taken_for_as_fast_as_the_others(ends, seconds):
    assert device_seconds([timed_row(PICTURE, 37.0, curves={"seconds": ends})]) == [seconds]


def stack(wall, at, epochs, together=10, **changes):
    """The rows of a stack of ten, all of whose epochs took the same time."""
    ends = [wall / epochs * (1 + epoch) for epoch in range(epochs)]
    return [
        timed_row(RESNET, wall, at=at, together=together, curves={"seconds": ends}, **changes) for _ in range(together)
    ]


def test_stacks_side_by_side_shared_the_device():
    assert device_seconds(stack(600.0, "01:00", 20)) == pytest.approx([600.0] * 10)
    beside = device_seconds(stack(600.0, "01:00", 20) + stack(601.0, "01:00", 20))
    assert beside == pytest.approx([30.0 + 19 * 30.0 / 2] * 20, rel=0.01)  # the first epoch is no measure
    later = device_seconds(stack(600.0, "01:00", 20) + stack(601.0, "01:08", 20))
    assert later == pytest.approx([600.0] * 20, rel=0.01)  # for a fifth of the time
