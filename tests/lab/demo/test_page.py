import pytest
import torch

from orthosparse.lab.demo.charts import mask_and_spectra
from orthosparse.lab.demo.isometries import Isometry
from orthosparse.lab.demo.networks import density_of
from orthosparse.lab.demo.page import Demo, page_of
from orthosparse.lab.demo.sampler import compare
from orthosparse.lab.demo.tables import network_table
from orthosparse.lab.demo.training import History
from orthosparse.lab.training import Recipe


@pytest.fixture
def demo(starts, small, generator):
    scales = dict(zip(starts, (1.0, 1e-9, 0.5, 2.0), strict=True))
    isometries = {name: Isometry(torch.full((5,), scale), [1, 6], [1.0, scale]) for name, scale in scales.items()}
    history = History([[2.0, 2.3, 2.1, 2.0], [1.0, 2.3, 1.5, 1.2]], [[0.5, 0.1, 0.3, 0.4], [0.9, 0.1, 0.8, 0.85]])
    densities = {name: density_of(network) for name, network in starts.items()}
    samples, recipe = compare(16, 0.2, generator=generator), Recipe(epochs=2, lr=0.1)
    return Demo(small, recipe, samples, starts, densities, isometries, history)


def test_the_table_has_density_spectrum_loss_and_accuracy_of_every_start(demo):
    table = network_table(demo.isometries, demo.densities, demo.history)
    rows = [[cell.text for cell in row.cells] for row in table.rows]
    assert rows[0] == ["dense", "1.0000", "1", "1", "1.000", "90.0 %"]
    assert [row[0] for row in rows] == ["dense", "base", "AI", "EOI"]
    assert [row[-1] for row in rows] == ["90.0 %", "10.0 %", "80.0 %", "85.0 %"]
    assert all(len(row) == len(table.columns) for row in rows)


def test_the_page_shows_the_last_accuracies_the_curves_and_a_mask_for_each_start(demo):
    page = page_of(demo, ["foot"])
    assert [tile.value for tile in page.tiles] == ["90.0 %", "10.0 %", "80.0 %", "85.0 %"]
    assert [len(section.figures) for section in page.sections] == [2, 2, 0, 2]
    assert [picture.title for picture in page.sections[2].pictures] == ["dense", "base", "AI", "EOI"]
    assert "576 active entries" in page.sections[2].pictures[0].caption


def test_the_picture_has_the_mask_and_the_three_spectra(demo):
    left, right = mask_and_spectra(demo.samples).axes
    assert (left.images[0].get_array() == 0).sum() == 51
    assert [len(line.get_ydata()) for line in right.get_lines()] == [16, 16, 16]
