"""Rows are found by key, or by all of it but the epochs, and then that is said."""

import pytest

from lab.paper.rows import row_of
from orthosparse.lab.experiments import Spectrum, Training
from orthosparse.lab.paper._book import Book, family

EXPERIMENT = Training("resnet32", "cifar10", 0.1)
SHORT = Training("resnet32", "cifar10", 0.1, epochs=20)


def test_accuracies_are_percent_in_the_order_of_seeds():
    rows = [row_of(EXPERIMENT, 2, test_accuracy=0.9), row_of(EXPERIMENT, 1, test_accuracy=0.8)]
    measured = Book(rows).accuracy(EXPERIMENT)
    assert measured.values == pytest.approx([80, 90])
    assert measured.note == ""


def test_shorter_runs_stand_in_and_are_named():
    rows = [row_of(SHORT, test_accuracy=0.7), row_of(Training("resnet32", "cifar10", 0.1, epochs=5), test_accuracy=0.1)]
    measured = Book(rows).accuracy(EXPERIMENT)
    assert measured.values == pytest.approx([70])
    assert measured.note == "20 epochs instead of 200"


def test_the_recipes_own_number_of_epochs_may_be_given():
    measured = Book([row_of(Training("resnet32", "cifar10", 0.1, epochs=200), test_accuracy=0.7)]).accuracy(EXPERIMENT)
    assert (len(measured.values), measured.note) == (1, "")


def test_the_right_number_of_epochs_comes_first():
    rows = [row_of(SHORT, test_accuracy=0.7), row_of(EXPERIMENT, test_accuracy=0.9)]
    assert Book(rows).accuracy(EXPERIMENT).values == pytest.approx([90])


def test_in_a_comparison_all_have_the_epochs_that_most_of_them_have():
    schemes = ("base", "ai", "eoi")
    asked, short = (
        [Training("resnet32", "cifar10", 0.1, scheme=scheme, epochs=epochs) for scheme in schemes]
        for epochs in (None, 20)
    )
    rows = [row_of(asked[0], test_accuracy=0.9), row_of(asked[2], test_accuracy=0.95)]
    book = Book(rows).level(asked)
    assert [book.accuracy(each).note for each in asked] == ["", "", ""]
    rows += [row_of(each, test_accuracy=0.5) for each in short[:2]]
    book = Book(rows).level(asked)  # two of each: the longer ones, and one that cannot be compared
    assert [book.accuracy(each).short for each in asked] == ["", "20 epochs instead of 200", ""]
    rows += [row_of(short[2], test_accuracy=0.6)]
    book = Book(rows).level(asked)
    assert [book.accuracy(each).values for each in asked] == [[50.0], [50.0], [60.0]]
    assert book.accuracy(asked[2]).note == "20 epochs instead of 200; 95.00 after 200"
    assert book.accuracy(asked[1]).note == "20 epochs instead of 200"
    assert Book(rows).accuracy(asked[2]).values == [95.0]


def test_other_experiments_are_no_stand_in():
    others = [Training("resnet32", "cifar10", 0.05), Training("resnet32", "cifar10", 0.1, lr=0.01, epochs=20)]
    others.append(Training("resnet32", "cifar10", 0.1, scheme="base"))
    book = Book([row_of(other, test_accuracy=0.5) for other in others])
    assert book.accuracy(EXPERIMENT).values == []


def test_diverged_runs_are_counted_and_have_no_accuracy():
    rows = [row_of(EXPERIMENT, 1, diverged=True), row_of(EXPERIMENT, 2, test_accuracy=0.9, diverged=False)]
    measured = Book(rows).accuracy(EXPERIMENT)
    assert measured.values == pytest.approx([90])
    assert measured.note == "1 of 2 diverged"


def test_curves_are_averaged_as_far_as_all_go():
    rows = [row_of(EXPERIMENT, seed, curves={"loss": ys}) for seed, ys in ((1, [1.0, 3.0, 5.0]), (2, [3.0, None]))]
    assert Book(rows).curve(EXPERIMENT, "loss") == [2.0, None]


def test_only_trainings_have_families():
    spectrum = Spectrum("relu", "erk", "eoi", 0.5)
    assert family(spectrum.key()) == spectrum.key()
    assert family(SHORT.key()) == EXPERIMENT.key()
