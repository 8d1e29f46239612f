import json
from pathlib import Path

import pytest
from sweep_toys import timed_row

from orthosparse.lab.experiments.mask_picture import MaskPicture
from orthosparse.lab.experiments.training import COSTS_OF, Training
from orthosparse.lab.paper._rows import read_rows
from orthosparse.lab.sweep.estimates import Estimates


def learned(*rows):
    """Estimates that learned from rows made here."""
    estimates = Estimates()
    estimates.learn(rows, "here")
    return estimates


def test_estimates_follow_runs_of_the_same_kind_then_the_experiments_own_cost():
    known, other = MaskPicture("sao"), Training("mlp", "mnist")
    assert Estimates().seconds([known]) == known.cost()
    estimates = learned(timed_row(known, 30.0), timed_row(known, 50.0))
    assert estimates.seconds([known]) == 40.0
    assert estimates.seconds([known, known]) == 80.0
    assert estimates.seconds([other]) == other.cost()


def picture(**changes):
    """A row of a picture of SAO's mask, made here in 8 s."""
    return timed_row(MaskPicture("sao"), **{"wall_s": 8.0, **changes})


def test_estimates_learn_from_rows_of_the_same_device_alone():
    assert learned(picture(), picture(device="elsewhere", wall_s=900.0)).seconds([MaskPicture("sao")]) == 8.0


def test_trainings_that_diverged_tell_nothing_of_times():
    assert learned(picture(), picture(wall_s=1.0, metrics={"diverged": True})).seconds([MaskPicture("sao")]) == 8.0


@pytest.mark.parametrize(
    "key",
    [
        {"kind": "unheard of"},
        {"kind": "mask_picture", "later": 1, "scheme": "sao"},
        {"kind": "mask_picture", "scheme": "unheard of"},
        {"kind": "mask_picture"},
        {"epochs": "many", "data": "mnist", "kind": "training", "model": "mlp"},
    ],
)
def test_rows_that_only_another_version_can_read_tell_nothing_of_times(key):
    text = json.dumps(key, sort_keys=True, separators=(",", ":"))
    estimates = learned(picture(key=text, kind=key["kind"], fields=key, wall_s=900.0), picture(key="not json"))
    assert estimates.seconds([MaskPicture("sao")]) == MaskPicture("sao").cost()


def test_a_row_whose_time_cannot_be_read_still_tells_how_long_it_took():
    assert learned(picture(time="yesterday")).seconds([MaskPicture("sao")]) == 8.0


SMALL, DEEPER = Training("resnet32", "cifar10"), Training("resnet56", "cifar10")
VGG, EFFICIENTNET = Training("vgg16c", "cifar10"), Training("efficientnet_b0", "cifar10")


def test_networks_of_a_stack_have_a_share_of_its_time_each():
    estimates = learned(*[timed_row(SMALL, 60.0, together=12) for _ in range(12)])
    assert estimates.seconds([SMALL], stacked=True) == pytest.approx(5.0)
    assert estimates.seconds([SMALL] * 3, stacked=True) == pytest.approx(15.0)
    assert estimates.seconds([DEEPER], stacked=True) == pytest.approx(
        5.0 * DEEPER.stacked_cost() / SMALL.stacked_cost()
    )


def test_stacks_are_judged_by_stacks_and_single_runs_by_single_runs():
    alone = learned(timed_row(SMALL, 30.0))
    assert alone.seconds([SMALL], stacked=True) == pytest.approx(30.0)  # nothing better is known
    both = learned(timed_row(SMALL, 30.0), timed_row(SMALL, 40.0, together=4))
    assert both.seconds([SMALL]) == pytest.approx(30.0)
    assert both.seconds([SMALL], stacked=True) == pytest.approx(10.0)


def test_a_network_in_a_stack_of_its_own_is_no_single_run():
    deep = Training("cnn1000", "cifar10")
    estimates = learned(timed_row(SMALL, 2 * SMALL.cost()), timed_row(deep, 2 * deep.stacked_cost(), together=1))
    assert estimates.seconds([EFFICIENTNET]) == pytest.approx(2 * EFFICIENTNET.cost())
    assert estimates.seconds([deep], stacked=True) == pytest.approx(2 * deep.stacked_cost())


def test_the_newest_runs_of_any_depth_win_over_older_ones_of_the_same_network():
    old = timed_row(DEEPER, 30 * DEEPER.stacked_cost(), at="08:00", together=10)
    new = timed_row(SMALL, 10 * SMALL.stacked_cost(), at="09:00", together=10, commit="two")
    for rows in ((old, new), (new, old)):
        assert learned(*rows).seconds([DEEPER], stacked=True) == pytest.approx(DEEPER.stacked_cost())


def test_another_network_tells_less_than_one_of_another_depth():
    estimates = learned(timed_row(EFFICIENTNET, 7 * EFFICIENTNET.cost(), at="09:00", commit="two"))
    assert estimates.seconds([DEEPER]) == pytest.approx(7 * DEEPER.cost())
    estimates.learn([timed_row(SMALL, 2 * SMALL.cost(), at="08:00")], "here")
    assert estimates.seconds([DEEPER]) == pytest.approx(2 * DEEPER.cost())


def test_other_networks_tell_nothing_on_the_device_of_the_costs():
    row = timed_row(EFFICIENTNET, 7 * EFFICIENTNET.cost(), device=COSTS_OF)
    estimates = Estimates()
    estimates.learn([row], COSTS_OF)
    assert estimates.seconds([VGG]) == VGG.cost()
    assert estimates.seconds([EFFICIENTNET]) == pytest.approx(7 * EFFICIENTNET.cost())


def test_the_committed_rows_tell_what_a_stack_of_residual_networks_takes():
    rows, _ = read_rows((Path(__file__).parents[3] / "results").glob("*.jsonl"))
    estimates = Estimates()
    estimates.learn([row for row in rows if row["time"] < "2026-11-19"], "NVIDIA H200")
    # 4.1 s an epoch for two stacks of 15, and the starts; a step of 17 ResNet-56 took 12.8 ms by the same kernels.
    assert estimates.seconds([Training("resnet32", "cifar10", 0.1)] * 30, stacked=True) == pytest.approx(
        200 * 4.1 + 100, rel=0.1
    )
    assert estimates.seconds([Training("resnet56", "cifar10", 0.1)] * 17, stacked=True) == pytest.approx(
        200 * 352 * 0.0128, rel=0.2
    )
    estimates = Estimates()
    estimates.learn(rows, "NVIDIA H200")
    # Three stacks side by side, of 12 ResNet-32, 8 and 7 ResNet-56.
    took = estimates.seconds([Training("resnet32", "cifar10", 0.1)] * 12, stacked=True)
    took += estimates.seconds([Training("resnet56", "cifar10", 0.1)] * 15, stacked=True)
    assert took == pytest.approx(1064, rel=0.15)
