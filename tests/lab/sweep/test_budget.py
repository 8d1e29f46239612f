import json
import time

import pytest
import sweep_toys

from orthosparse.lab.experiments.mask_picture import MaskPicture
from orthosparse.lab.sweep.budget import Estimates, run_for, seconds_of
from orthosparse.lab.sweep.engines import ENGINES
from orthosparse.lab.sweep.pairs import Pair
from orthosparse.lab.sweep.store import Store


def test_a_time_is_read_in_hours_minutes_and_seconds():
    assert seconds_of("2h5m1s") == 7501
    for wrong in ("", "25", "m", "5m2h", "-5m", "0m", "1.5h", "soon"):
        with pytest.raises(ValueError, match="budget: expected a time like 25m"):
            seconds_of(wrong)


def test_estimates_follow_the_same_experiment_then_its_kind_then_its_own_cost(toys):
    estimates = Estimates()
    known, other = toys.pair("known", seconds=10.0).experiment, toys.pair("other", seconds=4.0).experiment
    assert estimates.seconds(other) == 4.0
    estimates.add(known, 30.0)
    estimates.add(known, 50.0)
    assert estimates.seconds(known) == 40.0
    assert estimates.seconds(other) == pytest.approx(4.0 * 80.0 / 20.0)
    assert estimates.seconds(MaskPicture("eoi")) == MaskPicture("eoi").cost()


def picture(**changes):
    """A row of a picture of SAO's mask, made here in 8 s."""
    return sweep_toys.row_of(Pair(MaskPicture("sao"), 1), device="here", wall_s=8.0) | changes


def test_estimates_learn_from_rows_of_the_same_device_alone():
    estimates = Estimates()
    estimates.learn([picture(), picture(device="elsewhere", wall_s=900.0)], "here")
    assert estimates.seconds(MaskPicture("sao")) == 8.0


def test_trainings_that_diverged_tell_nothing_of_times():
    estimates = Estimates()
    estimates.learn([picture(), picture(wall_s=1.0, metrics={"diverged": True})], "here")
    assert estimates.seconds(MaskPicture("sao")) == 8.0


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
    estimates = Estimates()
    estimates.learn([picture(wall_s=37.0, curves={"seconds": ends})], "here")
    assert estimates.seconds(MaskPicture("sao")) == seconds


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
    estimates = Estimates()
    estimates.learn([picture(key=text, kind=key["kind"], fields=key, wall_s=900.0), picture(key="not json")], "here")
    assert estimates.seconds(MaskPicture("sao")) == MaskPicture("sao").cost()


def test_pairs_that_ran_as_one_have_a_share_of_the_time_each(toys):
    estimates = Estimates()
    one, two = toys.pair("one", seconds=10.0).experiment, toys.pair("two", seconds=20.0).experiment
    estimates.add(one, 60.0, together=12)
    assert (estimates.seconds(one), estimates.seconds(two)) == (5.0, 10.0)
    assert estimates.seconds(one, two, two) == 25.0


def test_what_ran_alone_tells_of_runs_alone_and_what_ran_as_one_of_runs_as_one(toys):
    estimates = Estimates()
    known, other = toys.pair("known", seconds=10.0).experiment, toys.pair("other", seconds=1.0).experiment
    estimates.add(known, 30.0)
    assert estimates.seconds(known, other) == 33.0  # nothing better is known
    estimates.add(known, 40.0, together=4)
    assert (estimates.seconds(known), estimates.seconds(known, known)) == (30.0, 20.0)
    assert (estimates.seconds(other), estimates.seconds(other, other)) == (3.0, 2.0)


def test_estimates_learn_shares_from_rows_of_pairs_that_ran_as_one():
    estimates = Estimates()
    estimates.learn([picture(wall_s=96.0, metrics={"together": 12})], "here")
    assert estimates.seconds(MaskPicture("sao")) == 8.0


def test_a_network_of_another_depth_tells_more_than_other_networks():
    from orthosparse.lab.experiments.training import Training

    estimates, deeper = Estimates(), Training("resnet56", "cifar10")
    small, other = Training("resnet32", "cifar10"), Training("mlp1000", "mnist")
    estimates.add(other, 7 * other.cost())
    assert estimates.seconds(deeper) == pytest.approx(7 * deeper.cost())
    estimates.add(small, 2 * small.cost())
    assert estimates.seconds(deeper) == pytest.approx(2 * deeper.cost())
    assert estimates.seconds(Training("vgg16c", "cifar10")) == pytest.approx(2 * Training("vgg16c", "cifar10").cost())


def test_stacks_tell_of_stacks_as_far_as_these_gain_from_it():
    from orthosparse.lab.experiments.training import Training

    estimates = Estimates()
    residual, vgg = Training("resnet32", "cifar10"), Training("vgg16c", "cifar10")
    assert estimates.seconds(vgg, vgg) == 2 * vgg.stacked_cost()
    estimates.add(residual, 20 * 1.5 * residual.stacked_cost(), together=20)
    assert estimates.seconds(vgg, vgg) == pytest.approx(2 * 1.5 * vgg.stacked_cost())
    # A stack of residual networks is far faster than they are alone; one of VGG-16 is not.
    assert residual.stacked_cost() < residual.cost() / 5
    assert vgg.stacked_cost() > vgg.cost() / 2


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
