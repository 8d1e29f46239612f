"""Rows are found by key, or by all of it but epochs and precision, and then that is said."""

import pytest

from lab.paper.rows import row_of
from orthosparse.lab.experiments.spectrum import Spectrum
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.paper._rows import RowIndex, family

EXPERIMENT = Training("resnet32", "cifar10", 0.1)
SHORT = Training("resnet32", "cifar10", 0.1, epochs=20)
NOTES = {
    (200, "tf32"): "",
    (200, "bf16"): "200 epochs in bf16 instead of tf32",
    (200, "fp32"): "200 epochs in fp32 instead of tf32",
    (20, "tf32"): "20 of 200 epochs",
    (300, "bf16"): "300 epochs instead of 200 in bf16 instead of tf32",
    (20, "bf16"): "20 of 200 epochs in bf16 instead of tf32",
}


def trained(scheme="eoi", epochs=200, precision="tf32", seed=1, accuracy=0.5, **more):
    """A row of one of three starts; what the recipe says is not spelled out."""
    own = {"epochs": epochs if epochs != 200 else None, "precision": precision if precision != "tf32" else None}
    return row_of(Training("resnet32", "cifar10", 0.1, scheme=scheme, **own), seed, test_accuracy=accuracy, **more)


def test_accuracies_are_percent_in_the_order_of_seeds():
    rows = [row_of(EXPERIMENT, 2, test_accuracy=0.9), row_of(EXPERIMENT, 1, test_accuracy=0.8)]
    measured = RowIndex(rows).accuracy(EXPERIMENT)
    assert measured.values == pytest.approx([80, 90])
    assert measured.note == ""


def test_shorter_runs_stand_in_and_are_named():
    rows = [row_of(SHORT, test_accuracy=0.7), row_of(Training("resnet32", "cifar10", 0.1, epochs=5), test_accuracy=0.1)]
    measured = RowIndex(rows).accuracy(EXPERIMENT)
    assert measured.values == pytest.approx([70])
    assert measured.note == "20 of 200 epochs"


def test_the_recipes_own_number_of_epochs_may_be_given():
    measured = RowIndex([row_of(Training("resnet32", "cifar10", 0.1, epochs=200), test_accuracy=0.7)]).accuracy(
        EXPERIMENT
    )
    assert (len(measured.values), measured.note) == (1, "")


def test_the_right_number_of_epochs_comes_first():
    rows = [row_of(SHORT, test_accuracy=0.7), row_of(EXPERIMENT, test_accuracy=0.9)]
    assert RowIndex(rows).accuracy(EXPERIMENT).values == pytest.approx([90])


def test_in_a_comparison_whole_trainings_are_shown_where_there_are_any():
    schemes = ("base", "ai", "eoi")
    asked, short = (
        [Training("resnet32", "cifar10", 0.1, scheme=scheme, epochs=epochs) for scheme in schemes]
        for epochs in (None, 20)
    )
    rows = [row_of(asked[0], test_accuracy=0.9), row_of(asked[2], test_accuracy=0.95)]
    index = RowIndex(rows).comparing(asked)
    assert [index.accuracy(each).note for each in asked] == ["", "", ""]
    rows += [row_of(each, test_accuracy=0.5) for each in short[:2]]
    index = RowIndex(rows).comparing(asked)  # one of them cannot be compared
    assert [index.accuracy(each).setting for each in asked] == ["", "20 of 200 epochs", ""]
    rows = [*rows[1:], row_of(short[2], test_accuracy=0.6)]
    index = RowIndex(rows).comparing(asked)  # three are short, and yet the whole one counts
    assert [index.accuracy(each).values for each in asked] == [[50.0], [50.0], [95.0]]
    assert [index.accuracy(each).note for each in asked] == ["20 of 200 epochs", "20 of 200 epochs", ""]
    assert [index.is_comparable(each) for each in asked] == [False, False, True]


def test_in_a_comparison_of_short_trainings_all_have_the_epochs_that_most_of_them_have():
    rows = [trained(scheme, epochs) for scheme, epochs in (("base", 20), ("ai", 20), ("eoi", 20), ("eoi", 30))]
    asked = [Training("resnet32", "cifar10", 0.1, scheme=scheme) for scheme in ("base", "ai", "eoi")]
    for more in ([], [trained("ai", 30)]):  # one or two of 30 epochs, three of 20
        index = RowIndex([*rows, *more]).comparing(asked)
        assert {index.accuracy(each).note for each in asked} == {"20 of 200 epochs"}
    assert RowIndex(rows).accuracy(asked[2]).note == "30 of 200 epochs"


def test_other_experiments_are_no_stand_in():
    others = [Training("resnet32", "cifar10", 0.05), Training("resnet32", "cifar10", 0.1, lr=0.01, epochs=20)]
    others.append(Training("resnet32", "cifar10", 0.1, scheme="base"))
    index = RowIndex([row_of(other, test_accuracy=0.5) for other in others])
    assert index.accuracy(EXPERIMENT).values == []


def test_diverged_runs_are_counted_and_have_no_accuracy():
    rows = [row_of(EXPERIMENT, 1, diverged=True), row_of(EXPERIMENT, 2, test_accuracy=0.9, diverged=False)]
    measured = RowIndex(rows).accuracy(EXPERIMENT)
    assert measured.values == pytest.approx([90])
    assert measured.note == "1 of 2 diverged"
    lost = RowIndex(rows[:1]).accuracy(EXPERIMENT)
    assert (lost.values, lost.note, len(lost.rows)) == ([], "", 1)


def test_curves_are_averaged_as_far_as_all_go():
    rows = [row_of(EXPERIMENT, seed, curves={"loss": ys}) for seed, ys in ((1, [1.0, 3.0, 5.0]), (2, [3.0, None]))]
    assert RowIndex(rows).curve(EXPERIMENT, "loss") == [2.0, None]


def test_only_trainings_have_families():
    spectrum = Spectrum("relu", "erk", "eoi", 0.5)
    assert family(spectrum.key()) == spectrum.key()
    assert family(SHORT.key()) == EXPERIMENT.key()
    assert family(trained(precision="bf16", epochs=3)["key"]) == EXPERIMENT.key()


def test_of_all_ways_the_one_asked_for_is_taken_then_right_epochs_then_the_right_precision_then_most_epochs():
    left = list(NOTES)  # in this order; both of 200 epochs in another precision are as good
    while left:
        measured = RowIndex([trained(epochs=epochs, precision=precision) for epochs, precision in left]).accuracy(
            EXPERIMENT
        )
        way = (measured.rows[0]["fields"]["epochs"], measured.rows[0]["fields"]["precision"])
        best = left[:2] if left[0] == (200, "bf16") else left[:1]
        assert way in best
        assert measured.note == measured.setting == NOTES[way]
        assert len(measured.values) == 1
        left.remove(way)


def test_what_an_experiment_asks_for_need_not_be_the_recipes():
    asked = Training("resnet32", "cifar10", 0.1, precision="bf16")
    rows = [trained(precision="bf16", accuracy=0.6), trained(accuracy=0.7)]
    measured = RowIndex(rows).accuracy(asked)
    assert (measured.values, measured.note) == ([60.0], "")
    assert RowIndex(rows[1:]).accuracy(asked).note == "200 epochs in tf32 instead of bf16"


@pytest.mark.parametrize("compared", [False, True])
def test_two_precisions_of_one_seed_are_never_two_seeds(compared):
    rows = [trained(precision=name, seed=seed, accuracy=0.5) for name in ("tf32", "bf16", "fp32") for seed in (1, 2)]
    index = RowIndex(rows).comparing([EXPERIMENT]) if compared else RowIndex(rows)
    measured = index.accuracy(EXPERIMENT)
    assert [row["seed"] for row in measured.rows] == [1, 2]
    assert {row["fields"]["precision"] for row in measured.rows} == {"tf32"}


def test_a_row_that_spells_out_its_recipe_is_no_second_seed():
    spelled = '{"data":"cifar10","density":0.1,"epochs":200,"kind":"training","model":"resnet32","precision":"tf32"}'
    rows = [row_of(EXPERIMENT, seed, test_accuracy=0.7) | {"key": spelled} for seed in (1, 2)]
    measured = RowIndex([*rows, trained(accuracy=0.9)]).accuracy(EXPERIMENT)
    assert measured.values == pytest.approx([90, 70])
    assert measured.note == ""


def test_in_a_comparison_all_have_the_precision_that_most_of_them_have():
    asked = [Training("resnet32", "cifar10", 0.1, scheme=scheme) for scheme in ("base", "ai", "eoi")]
    rows = [trained("base", accuracy=0.9), trained("eoi", accuracy=0.95)]
    rows += [trained(scheme, precision="bf16", accuracy=0.8) for scheme in ("base", "ai")]
    index = RowIndex(rows).comparing(asked)  # two of each: the precision asked for, and one that cannot be compared
    assert [index.accuracy(each).setting for each in asked] == ["", NOTES[200, "bf16"], ""]
    assert [index.is_comparable(each) for each in asked] == [True, False, True]
    assert [index.label("it", each) for each in asked] == ["it", f"it ({NOTES[200, 'bf16']})", "it"]
    rows += [trained("eoi", precision="bf16", accuracy=0.7)]
    index = RowIndex(rows).comparing(asked)
    assert [index.accuracy(each).values for each in asked] == [[80.0], [80.0], [70.0]]
    assert index.accuracy(asked[2]).note == "200 epochs in bf16 instead of tf32; 95.00 in tf32"
    assert index.accuracy(asked[1]).note == "200 epochs in bf16 instead of tf32"
    assert [index.label("it", each) for each in asked] == ["it"] * 3
    assert RowIndex(rows).accuracy(asked[2]).values == [95.0]


def test_a_label_beside_curves_that_were_not_trained_as_asked_does_not_say_in_what_it_differs_from_that():
    asked = [Training("resnet32", "cifar10", 0.1, scheme=scheme) for scheme in ("base", "ai", "eoi")]
    rows = [trained(scheme, precision="bf16") for scheme in ("base", "ai")]
    for odd, said in ((trained("eoi", 30, "bf16"), "30 epochs in bf16"), (trained("eoi"), "200 epochs in tf32")):
        index = RowIndex([*rows, odd]).comparing(asked)
        assert [index.label("it", each) for each in asked] == ["it", "it", f"it ({said})"]
    short = [trained(scheme, 20) for scheme in ("base", "ai")]
    index = RowIndex([*short, trained("eoi", 30)]).comparing(asked)
    assert [index.label("it", each) for each in asked] == ["it", "it", "it (30 epochs in tf32)"]


def test_more_epochs_count_before_the_precision_asked_for():
    rows = [trained(scheme, 20) for scheme in ("base", "eoi")]
    rows += [trained(scheme, 30, "bf16", accuracy=0.6) for scheme in ("base", "eoi")]
    asked = [Training("resnet32", "cifar10", 0.1, scheme=scheme) for scheme in ("base", "eoi")]
    index = RowIndex(rows).comparing(asked)
    assert {index.accuracy(each).note for each in asked} == {"30 of 200 epochs in bf16 instead of tf32"}
    index = RowIndex([*rows, trained("eoi", accuracy=0.9)]).comparing(asked)
    assert [index.accuracy(each).note for each in asked] == ["20 of 200 epochs", ""]  # the nearest to what is asked


def test_of_equal_lengths_the_precision_asked_for_counts():
    rows = [trained(scheme, precision=name) for scheme in ("base", "eoi") for name in ("bf16", "fp32", "fp64", "tf32")]
    for name in ("bf16", "fp32", "fp64", "tf32"):
        asked = [Training("resnet32", "cifar10", 0.1, scheme=scheme, precision=name) for scheme in ("base", "eoi")]
        index = RowIndex(rows).comparing(asked)
        assert [index.rows(each)[0][0]["fields"]["precision"] for each in asked] == [name, name]
        assert {index.accuracy(each).note for each in asked} == {""}


def test_a_second_comparison_forgets_the_first():
    schemes = ("base", "ai", "eoi", "sao")
    base, ai, eoi, sao = (Training("resnet32", "cifar10", 0.1, scheme=scheme) for scheme in schemes)
    rows = [trained("base", 20), trained("base", 30), trained("ai", 20), trained("eoi"), trained("sao")]
    index = RowIndex(rows).comparing([base, ai])
    assert index.accuracy(base).setting == NOTES[20, "tf32"]
    assert index.comparing([eoi, sao]).accuracy(base).setting == NOTES[20, "tf32"]
    again = index.comparing([base, eoi, sao])  # as which it was not trained
    assert again.accuracy(base).setting == "30 of 200 epochs"
    assert not again.is_comparable(base)


def test_curves_of_two_precisions_are_not_averaged():
    rows = [trained(curves={"loss": [1.0, 3.0]}), trained(precision="bf16", curves={"loss": [9.0, 9.0]})]
    assert RowIndex(rows).curve(EXPERIMENT, "loss") == [1.0, 3.0]


def test_a_label_without_rows_is_itself():
    assert RowIndex(()).label("it", EXPERIMENT) == "it"


def test_a_row_without_a_number_in_the_asked_precision_leaves_the_others_shown():
    schemes = ("base", "ai", "eoi")
    rows = [trained(scheme, precision="bf16", accuracy=0.9) for scheme in schemes] + [trained(accuracy=None)]
    asked = [Training("resnet32", "cifar10", 0.1, scheme=scheme) for scheme in schemes]
    measured = RowIndex(rows).comparing(asked).accuracy(asked[2])
    assert (measured.values, measured.note) == (pytest.approx([90]), "200 epochs in bf16 instead of tf32")
