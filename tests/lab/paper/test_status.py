"""How much is measured."""

from lab.paper.rows import row_of
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.paper import ITEMS
from orthosparse.lab.paper._chapters import chapters_of
from orthosparse.lab.paper.status import status_of, status_table

EOI = Training("resnet32", "cifar10", 0.1)


def status(name, rows):
    (chapter,) = chapters_of({name: ITEMS[name]}, rows)
    return status_of(chapter)


def test_pairs_cells_and_other_rows_are_counted():
    rows = [row_of(EOI, seed, test_accuracy=0.9) for seed in (1, 2, 9)]  # the item has five seeds
    rows += [row_of(Training("resnet32", "cifar10", 0.1, scheme="base", epochs=8), test_accuracy=0.5)]
    found = status("contemporary", rows)
    assert (found["done"], found["pairs"], found["others"]) == (2, 510, 2)
    assert (found["our_cells"], found["cells"], found["status"]) == (1, 102, "begun")
    assert status("angles", [])["status"] == "not yet run"


def test_the_table_sums_the_cells_up():
    found = [status(name, []) for name in ("contemporary", "efficiency", "angles")]
    rows = [[cell.text for cell in row.cells] for row in status_table(found).rows]
    assert [row[2] for row in rows] == ["0/102", "", "0/3", "0/105"]
