"""Laws of all items: they run, render, and never show the paper's numbers as ours."""

from pathlib import Path

import pytest

from orthosparse.lab.experiments import Experiment, experiment_of
from orthosparse.lab.paper import ITEMS
from orthosparse.lab.paper._rows import family
from orthosparse.lab.paper._tables import Rendered

NAMES = [
    "singular_values",
    "loss_curves",
    "deep_networks",
    "contemporary",
    "contemporary_5",
    "activations",
    "ranks",
    "efficiency",
    "expected_density",
    "angles",
    "mask_pictures",
    "dynamic",
    "density_sweep",
    "init_runtime",
    "parameter_counts",
    "imagenet",
    "conv_details",
    "aligned",
    "aligned_200",
    "strides",
    "depthwise",
    "efficientnet",
]


def cells_of(rendered):
    return [cell for table in rendered.tables for cells in table.cells for cell in cells]


def test_every_item_is_a_file_of_its_name():
    assert list(ITEMS) == NAMES
    assert [Path(item.__file__).stem for item in ITEMS.values()] == NAMES


def test_the_command_runs_the_tiny_version_of_every_item(tiny_run):
    status, _ = tiny_run
    assert status == 0


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.torchvision] * (name == "imagenet")) for name in NAMES]
)
def test_the_rows_of_the_tiny_version_render(name, tiny_rows):
    rendered = ITEMS[name].render(tiny_rows(name), smoke=True)
    assert isinstance(rendered, Rendered)
    cells = cells_of(rendered)
    assert any(cell.ours is not None for cell in cells) or rendered.pictures
    assert all(cell.seeds > 0 for cell in cells if cell.ours is not None)


@pytest.mark.parametrize("name", NAMES)
def test_experiments_are_plain_different_and_known_by_their_keys(name):
    experiments = ITEMS[name].experiments()
    assert experiments
    assert all(isinstance(experiment, Experiment) for experiment in experiments)
    keys = [experiment.key() for experiment in experiments]
    assert len(set(keys)) == len(keys)
    assert len(set(map(family, keys))) == len(keys), "rows of one would stand in for another"
    assert [experiment_of(key).key() for key in keys] == keys
    assert not set(keys) & {experiment.key() for experiment in ITEMS[name].experiments(smoke=True)}
    assert all(isinstance(seed, int) for seed in ITEMS[name].SEEDS)


@pytest.mark.parametrize("name", NAMES)
def test_without_rows_nothing_of_ours_is_shown(name):
    rendered = ITEMS[name].render([])
    assert all(cell.ours is None and cell.seeds == 0 and cell.difference is None for cell in cells_of(rendered))
    hollow = {series.label for figure in rendered.figures for series in figure.series if series.points == "hollow"}
    assert {series.label for figure in rendered.figures for series in figure.series} == hollow  # the paper's
    assert all(label.endswith("paper") for label in hollow)
    assert not rendered.pictures


@pytest.mark.parametrize("name", NAMES)
def test_tables_are_rectangles_and_titles_stand(name):
    assert ITEMS[name].TITLE
    for table in ITEMS[name].render([]).tables:
        assert len(table.cells) == len(table.lines)
        assert {len(cells) for cells in table.cells} == {len(table.columns)}
        assert {len(line.heads) for line in table.lines} == {len(table.heads)}


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("singular_values", 648),  # (4 x 4 + 2) x 12 x 3
        ("loss_curves", 54),  # (4 x 4 + 2) x 3
        ("deep_networks", 42),  # 2 x (4 x 3 + 2 + 1 + 2 x 3)
        ("contemporary", 102),  # 6 x (15 + 2)
        ("contemporary_5", 70),  # 4 x 17 + 2
        ("activations", 114),  # 2 x (4 x 15 - 3)
        ("ranks", 90),  # 6 x 15
        ("init_runtime", 75),  # 5 x 15
        ("parameter_counts", 7),
        ("imagenet", 4),
        ("aligned", 130),  # (2 x 4 + 2) x 7 + 1 + 3 x 3 x 5 + 7 + 7
        ("aligned_200", 27),  # 3 x 3 x 3
        ("strides", 6),  # 2 x 3
        ("depthwise", 14),  # 2 x 7
        ("efficientnet", 17),  # 5 x 3 + 2
    ],
)
def test_items_are_complete(name, count):
    assert len(ITEMS[name].experiments()) == count


def test_every_number_of_the_paper_stands_in_its_table():
    from orthosparse.lab.paper._tables import paper_tables

    for name, item in ITEMS.items():
        shown = {
            (line.key, column.key, cell.paper)
            for table in item.render([]).tables
            if table.compared
            for line, cells in zip(table.lines, table.cells, strict=True)
            for column, cell in zip(table.columns, cells, strict=True)
        }
        expected = {
            (line, column, number)
            for line, cells in paper_tables().get(name, {}).items()
            for column, number in cells.items()
        }
        assert expected <= shown, name
