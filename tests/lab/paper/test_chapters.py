"""Items with their rows, and single runs."""

import json

import pytest

from lab.paper.rows import row_of
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.paper import ITEMS
from orthosparse.lab.paper._chapters import cells_of, chapters_of, coverage, runs_json, thinned

EOI = Training("resnet32", "cifar10", 0.1)
SHORT = Training("resnet32", "cifar10", 0.1, epochs=20)
CURVES = {"loss": [1.0, 0.5]}


def test_cells_count_once_they_trained_for_the_papers_epochs():
    assert cells_of(ITEMS["contemporary"].render([])) == (0, 102)
    assert cells_of(ITEMS["contemporary"].render([row_of(SHORT, test_accuracy=0.5)])) == (0, 102)
    assert cells_of(ITEMS["contemporary"].render([row_of(EOI, test_accuracy=0.5)])) == (1, 102)
    assert coverage(chapters_of(ITEMS, [])).startswith("0 of 431 cells")


def test_rows_of_other_epochs_stand_in_unless_another_item_asks_for_them():
    same = {"model": "resnet56", "data": "cifar10", "density": 0.05, "distribution": "snip", "precision": "bf16"}
    rows = [row_of(Training(**same, epochs=epochs), test_accuracy=0.5) for epochs in (50, 60, 200)]
    found = {chapter.name: chapter.rows for chapter in chapters_of(ITEMS, rows) if chapter.rows}
    lengths = {name: [row["fields"]["epochs"] for row in own] for name, own in found.items()}
    assert lengths == {"contemporary_5": [50, 200], "aligned": [50, 60], "aligned_200": [50, 200]}
    (alone,) = chapters_of({"aligned": ITEMS["aligned"]}, rows)
    assert len(alone.rows) == 3


def test_a_run_of_several_items_is_listed_once_and_says_how_it_differs():
    runs = json.loads(runs_json(chapters_of(ITEMS, [row_of(EOI, curves=CURVES), row_of(SHORT, curves=CURVES)])))
    assert [run["name"] for run in runs] == [EOI.label(), f"{EOI.label()} (20 epochs in tf32)"]
    assert runs[0]["curves"] == {"loss": {"step": 1, "y": [1.0, 0.5]}}


@pytest.mark.parametrize("count", [0, 1, 240, 241, 5000])
def test_thinned_curves_are_short_and_begin_at_the_first_point(count):
    found = thinned(range(count))
    assert len(found["y"]) <= 240
    assert found["y"] == list(range(0, count, found["step"]))
