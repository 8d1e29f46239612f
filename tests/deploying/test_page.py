"""The figures of the page on deploy are those of the committed rows."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [json.loads(line) for line in (ROOT / "results/benchmarks/deploy.jsonl").read_text().splitlines()]
PAGE = (ROOT / "docs/howto/deploy.md").read_text()
NETWORKS = [row for row in ROWS if row["part"] == "network"]
DEAD = [row for row in ROWS if row["part"] == "dead"]


def cells_of(*beginning):
    """The cells of the line of a table that begins so."""
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")
    ]
    (found,) = [cells for cells in lines if cells[: len(beginning)] == [*map(str, beginning)]]
    return found


@pytest.mark.parametrize("row", NETWORKS, ids=lambda row: f"{row['network']}, {row['batch']}, {row['density']}")
def test_ratios_of_networks(row):
    column = 2 + [0.1, 0.05, 0.02].index(row["density"])
    assert cells_of(row["network"], row["batch"])[column] == f"{row['ratio']:.1f}x"
    assert row["target"] is None or row["ratio"] >= row["target"]
    assert row["error"] < 1e-5


def test_layers_that_were_timed_again():
    layers, fast = (sum(row[key] for row in NETWORKS) for key in ("sparse_layers", "not_slower"))
    assert f"{fast} of the {layers} layers" in " ".join(PAGE.split())
    assert fast >= 0.95 * layers
    assert all(ratio >= 0.95 for row in NETWORKS for ratio in row["slower"].values())


@pytest.mark.parametrize("row", DEAD, ids=lambda row: f"{row['network']}, {row['density']}")
def test_at_least_the_dead_rows_and_columns_of_the_report_are_removed(row):
    most = row["removed"]["select channels"]
    assert most["rows"] >= row["dead_rows"]
    assert most["columns"] >= row["dead_columns"]
    assert row["error"] < 1e-5
    if row["density"] == 0.01:
        cells = cells_of(row["network"])
        assert cells[1] == f"{row['dead_rows']:,}, {row['dead_columns']:,}"
        assert cells[3] == f"{most['rows']:,}, {most['columns']:,}"
