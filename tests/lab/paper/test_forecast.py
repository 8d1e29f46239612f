"""What is left of the queue."""

from orthosparse.lab.experiments.mask_picture import MaskPicture
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.paper.forecast import forecast_of, forecast_table
from orthosparse.lab.paper.queue import Entry
from orthosparse.lab.sweep.estimates import Estimates
from orthosparse.lab.sweep.pairs import Pair

RESNET, PICTURE = Pair(Training("resnet32", "cifar10", 0.1), 1), Pair(MaskPicture("sao"), 1)


def minutes(*seconds):
    return round(sum(seconds) / 60, 1)


def test_networks_of_a_stack_cost_a_share_of_it_and_what_trains_alone_its_own_time():
    steps = [
        (Entry("Stack", "contemporary"), [RESNET, PICTURE]),
        (Entry("Alone", "contemporary", together=None), [Pair(RESNET.experiment, 2)]),
    ]
    stack, alone = forecast_of(steps, set(), Estimates())
    assert stack["minutes"] == minutes(RESNET.experiment.stacked_cost(), PICTURE.experiment.cost())
    assert alone["minutes"] == minutes(RESNET.experiment.cost())


def test_a_pair_is_missing_once_and_not_if_it_has_a_row():
    steps = [(Entry(title, "contemporary"), [RESNET, PICTURE]) for title in ("First", "Second")]
    known = {PICTURE.name}
    assert [each["missing"] for each in forecast_of(steps, known, Estimates())] == [1, 0]
    assert known == {PICTURE.name}


def test_the_last_line_of_the_table_has_the_sums():
    about = {"title": "A", "item": "a", "pairs": 9, "minutes": 1.5}
    found = [{**about, "missing": missing, "rough": False} for missing in (2, 3)]
    assert [cell.text for cell in forecast_table(found).rows[-1].cells] == ["all", "", "5", "3.0"]


def test_minutes_are_rough_until_a_run_of_the_network_was_measured():
    steps = [(Entry("Stack", "contemporary"), [RESNET]), (Entry("Picture", "mask_pictures"), [PICTURE])]
    estimates = Estimates()
    estimates.add(PICTURE.experiment, {"device": "here", "commit": "one", "metrics": {}}, 60.0)
    found = forecast_of(steps, set(), estimates)
    assert [each["rough"] for each in found] == [True, False]
    assert [row.cells[-1].text[0] for row in forecast_table(found).rows] == ["~", "1", "~"]
    assert not forecast_of(steps, {RESNET.name, PICTURE.name}, Estimates())[0]["rough"]
