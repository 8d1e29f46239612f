import json
import time
from pathlib import Path

import pytest
import sweep_toys

from orthosparse.lab.experiments.mask_picture import MaskPicture
from orthosparse.lab.experiments.training import COSTS_OF, Training
from orthosparse.lab.paper._rows import read_rows
from orthosparse.lab.sweep.budget import Estimates, run_for, seconds_of
from orthosparse.lab.sweep.engines import ENGINES
from orthosparse.lab.sweep.pairs import Pair
from orthosparse.lab.sweep.store import Store


def test_a_time_is_read_in_hours_minutes_and_seconds():
    assert seconds_of("2h5m1s") == 7501
    for wrong in ("", "25", "m", "5m2h", "-5m", "0m", "1.5h", "soon"):
        with pytest.raises(ValueError, match="budget: expected a time like 25m"):
            seconds_of(wrong)


def learned(*rows):
    """Estimates that learned from rows made here."""
    estimates = Estimates()
    estimates.learn(rows, "here")
    return estimates


def row_of(experiment, wall_s, *, at="00:00", commit="one", together=None, **changes):
    """A row that was made here, at an hour of one day."""
    metrics = {} if together is None else {"together": together}
    row = sweep_toys.row_of(Pair(experiment, 1), device="here", wall_s=wall_s, commit=commit, metrics=metrics)
    return row | {"time": f"2026-01-01T{at}:00+00:00"} | changes


def test_estimates_follow_runs_of_the_same_kind_then_the_experiments_own_cost():
    known, other = MaskPicture("sao"), Training("mlp", "mnist")
    assert Estimates().seconds([known]) == known.cost()
    estimates = learned(row_of(known, 30.0), row_of(known, 50.0))
    assert estimates.seconds([known]) == 40.0
    assert estimates.seconds([known, known]) == 80.0
    assert estimates.seconds([other]) == other.cost()


def picture(**changes):
    """A row of a picture of SAO's mask, made here in 8 s."""
    return row_of(MaskPicture("sao"), **{"wall_s": 8.0, **changes})


def test_estimates_learn_from_rows_of_the_same_device_alone():
    assert learned(picture(), picture(device="elsewhere", wall_s=900.0)).seconds([MaskPicture("sao")]) == 8.0


def test_trainings_that_diverged_tell_nothing_of_times():
    assert learned(picture(), picture(wall_s=1.0, metrics={"diverged": True})).seconds([MaskPicture("sao")]) == 8.0


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
    assert learned(picture(wall_s=37.0, curves={"seconds": ends})).seconds([MaskPicture("sao")]) == seconds


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
    estimates = learned(*[row_of(SMALL, 60.0, together=12) for _ in range(12)])
    assert estimates.seconds([SMALL], stacked=True) == pytest.approx(5.0)
    assert estimates.seconds([SMALL] * 3, stacked=True) == pytest.approx(15.0)
    assert estimates.seconds([DEEPER], stacked=True) == pytest.approx(
        5.0 * DEEPER.stacked_cost() / SMALL.stacked_cost()
    )


def test_stacks_are_judged_by_stacks_and_single_runs_by_single_runs():
    alone = learned(row_of(SMALL, 30.0))
    assert alone.seconds([SMALL], stacked=True) == pytest.approx(30.0)  # nothing better is known
    both = learned(row_of(SMALL, 30.0), row_of(SMALL, 40.0, together=4))
    assert both.seconds([SMALL]) == pytest.approx(30.0)
    assert both.seconds([SMALL], stacked=True) == pytest.approx(10.0)


def test_a_network_in_a_stack_of_its_own_is_no_single_run():
    deep = Training("cnn1000", "cifar10")
    estimates = learned(row_of(SMALL, 2 * SMALL.cost()), row_of(deep, 2 * deep.stacked_cost(), together=1))
    assert estimates.seconds([EFFICIENTNET]) == pytest.approx(2 * EFFICIENTNET.cost())
    assert estimates.seconds([deep], stacked=True) == pytest.approx(2 * deep.stacked_cost())


def test_the_newest_runs_of_any_depth_win_over_older_ones_of_the_same_network():
    old = row_of(DEEPER, 30 * DEEPER.stacked_cost(), at="08:00", together=10)
    new = row_of(SMALL, 10 * SMALL.stacked_cost(), at="09:00", together=10, commit="two")
    for rows in ((old, new), (new, old)):
        assert learned(*rows).seconds([DEEPER], stacked=True) == pytest.approx(DEEPER.stacked_cost())


def test_another_network_tells_less_than_one_of_another_depth():
    estimates = learned(row_of(EFFICIENTNET, 7 * EFFICIENTNET.cost(), at="09:00", commit="two"))
    assert estimates.seconds([DEEPER]) == pytest.approx(7 * DEEPER.cost())
    estimates.learn([row_of(SMALL, 2 * SMALL.cost(), at="08:00")], "here")
    assert estimates.seconds([DEEPER]) == pytest.approx(2 * DEEPER.cost())


def test_other_networks_tell_nothing_on_the_device_of_the_costs():
    row = row_of(EFFICIENTNET, 7 * EFFICIENTNET.cost(), device=COSTS_OF)
    estimates = Estimates()
    estimates.learn([row], COSTS_OF)
    assert estimates.seconds([VGG]) == VGG.cost()
    assert estimates.seconds([EFFICIENTNET]) == pytest.approx(7 * EFFICIENTNET.cost())


def stack(wall, at, epochs, together=10, **changes):
    """The rows of a stack of ten, all of whose epochs took the same time."""
    ends = [wall / epochs * (1 + epoch) for epoch in range(epochs)]
    return [row_of(SMALL, wall, at=at, together=together, curves={"seconds": ends}, **changes) for _ in range(together)]


def test_stacks_side_by_side_shared_the_device():
    alone = learned(*stack(600.0, "01:00", 20)).seconds([SMALL], stacked=True)
    beside = learned(*stack(600.0, "01:00", 20), *stack(601.0, "01:00", 20)).seconds([SMALL], stacked=True)
    later = learned(*stack(600.0, "01:00", 20), *stack(601.0, "01:08", 20)).seconds([SMALL], stacked=True)
    assert alone == pytest.approx(60.0)
    assert beside == pytest.approx((30.0 + 19 * 30.0 / 2) / 10, rel=0.01)  # the first epoch is no measure
    assert later == pytest.approx(60.0, rel=0.01)  # for a fifth of the time


def test_the_committed_rows_tell_what_a_stack_of_residual_networks_takes():
    rows, _ = read_rows((Path(__file__).parents[3] / "results").glob("*.jsonl"))
    estimates = Estimates()
    estimates.learn(rows, "NVIDIA H200")
    # 4.1 s an epoch for two stacks of 15, and the starts; a step of 17 ResNet-56 took 12.8 ms by the same kernels.
    assert estimates.seconds([Training("resnet32", "cifar10", 0.1)] * 30, stacked=True) == pytest.approx(
        200 * 4.1 + 100, rel=0.1
    )
    assert estimates.seconds([Training("resnet56", "cifar10", 0.1)] * 17, stacked=True) == pytest.approx(
        200 * 352 * 0.0128, rel=0.2
    )


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results.sqlite")


def timed(seconds, steps, store):
    return run_for(seconds, steps, store, ENGINES["local"], perform=sweep_toys.perform, estimates=Estimates())


def test_what_fits_runs_in_order_and_what_does_not_is_begun_and_stopped(store, toys):
    long = toys.pair("long", seconds=60.0, price=1000.0)
    steps = [([toys.pair("a"), long], None), ([toys.pair("b"), toys.pair("c")], None)]
    begin = time.monotonic()
    summary = timed(2.0, steps, store)
    assert time.monotonic() - begin < 20
    assert [name for name, _, _ in toys.starts()] == ["a", "b", "c", "long"]
    assert ([pair.experiment.name for pair in summary.done], summary.postponed) == (["a", "b", "c"], [long])
    assert not store.claim(*toys.pair("a").name, sweep_toys_owner())  # it has a row
    assert store.claim(*long.name, sweep_toys_owner())  # and nobody holds what was stopped


def sweep_toys_owner():
    from orthosparse.lab.sweep.store import Owner

    return Owner("another-machine", 1, "a")


def test_with_time_enough_everything_ends_and_a_failure_is_not_tried_twice(store, toys):
    steps = [([toys.pair("a"), toys.pair("bad", error="no luck")], None), ([toys.pair("a"), toys.pair("b")], None)]
    summary = timed(60.0, steps, store)
    assert [name for name, _, _ in toys.starts()] == ["a", "bad", "b"]
    assert [outcome.error for outcome in summary.failed] == ["ValueError: no luck"]
    assert (len(summary.done), summary.had, summary.postponed) == (2, 0, [])
    assert timed(60.0, steps, store).had == 2


def test_what_costs_too_much_still_ends_if_it_takes_less_time_than_expected(store, toys):
    summary = timed(60.0, [([toys.pair("a", price=1000.0)], None)], store)
    assert len(summary.done) == 1
