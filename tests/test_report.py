"""The report: few warnings one by one, many in one line, and a notebook's table with colours by meaning."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

import orthosparse
from orthosparse.layers import find_layers
from orthosparse.report import PROBLEMS, Report, Row, row_of
from orthosparse.tables import TONES

ROW = Row("fc", (8, 6), 48, 20, 20, None, 1e-7, 8, 0, 6, 0, "")


def report_of(*rows):
    return Report(tuple(replace(row, layer=f"fc{number}") for number, row in enumerate(rows)), 20, "erk", "eoi", 1.0, 7)


def test_few_warnings_are_printed_one_by_one():
    lines = str(report_of(ROW, replace(ROW, dead_outputs=2), replace(ROW, got=0))).splitlines()
    assert lines[-2:] == ["warning: fc1: 2 of 8 outputs unreachable", "warning: fc2: empty, nothing passes"]


def test_many_warnings_are_one_line_and_all_in_the_list():
    strided = replace(ROW, rank=(3, 6), dead_inputs=1)
    report = report_of(*[replace(ROW, dead_outputs=1)] * 24, strided, replace(ROW, got=0), ROW)
    assert len(report.warnings) == 27
    assert str(report).count("warning") == 2  # the line, and where to find all of them
    assert str(report).splitlines()[-1] == (
        "warning: 1 of 27 layers are empty, 24 of 27 layers have unreachable outputs, "
        "1 of 27 layers have unreachable inputs, 1 of 27 layers lose rank through their stride "
        "(report.warnings names them)"
    )


def test_colours_of_a_notebook_say_what_cells_mean():
    rows = [ROW, replace(ROW, got=0, orthogonality=2.4), replace(ROW, dead_outputs=3, note="gave 3")]
    page = ElementTree.fromstring(f"<div>{report_of(*rows)._repr_html_()}</div>")
    headings = [each.text for each in page.iter("th")]

    def tones(heading):
        styles = [line[headings.index(heading)].get("style") for line in page.findall(".//tbody/tr")]
        return [next((name for name, colour in TONES.items() if style.endswith(colour)), "") for style in styles]

    assert tones("got") == ["", "bad", ""]
    assert tones("orthogonality") == ["good", "", "good"]
    assert tones("dead out") == ["", "", "warning"]
    assert tones("note") == ["faint"] * 3
    assert tones("layer") == [""] * 3
    assert [span.text for span in page.iter("span")] == [
        "warning: fc1: empty, nothing passes",
        "warning: fc2: 3 of 8 outputs unreachable",
    ]


def test_deep_models_are_folded_in_a_notebook():
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(30)])
    report = orthosparse.sparsify(model, 0.5, generator=torch.Generator().manual_seed(0))
    page = ElementTree.fromstring(f"<div>{report._repr_html_()}</div>")
    assert page.find("./details/summary").text == "30 rows"
    assert "weights active" in page.find("./p").text


def test_a_report_says_whether_weights_were_replaced():
    replaced = "replaced the weights (prune keeps those of a trained model)"
    assert f"eoi {replaced}" in str(orthosparse.sparsify(nn.Sequential(nn.Linear(6, 6)), 0.5))
    assert replaced not in str(orthosparse.sparsify(nn.Sequential(nn.Linear(6, 6)), 0.5, scheme="base"))
    assert replaced not in str(orthosparse.prune(nn.Sequential(nn.Linear(6, 6)), 0.5))


def row(module, mask, gain=1.0, asked=None, **options):
    (layer,) = find_layers(nn.Sequential(module), **options).values()
    structure = options.get("structure", "entries")
    asked = int(mask.sum()) if asked is None else asked
    return row_of(layer, layer.weight() * mask, mask, asked=asked, overlap=None, gain=gain, structure=structure)


def test_a_row_counts_entries_and_what_they_do_not_reach():
    linear, mask = nn.Linear(4, 3), torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]]).bool()
    nn.init.ones_(linear.weight)
    found = row(linear, mask, asked=5)
    assert (found.layer, found.shape, found.numel, found.asked, found.got) == ("0", (3, 4), 12, 5, 3)
    assert (found.dead_outputs, found.outputs, found.dead_inputs, found.inputs) == (1, 3, 2, 4)
    # A A^T = [[2, 0, 1], [0, 0, 0], [1, 0, 1]], so that A A^T - I has squares 1 + 1 + 1 + 1
    assert found.orthogonality == pytest.approx(2.0)
    assert found.warnings == ["0: 1 of 3 outputs unreachable", "0: 2 of 4 inputs unreachable"]


@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d])
def test_a_convolution_at_one_tap_says_that_it_does_not_mix_positions(kind):
    convolution = kind(4, 4, 3)
    mask = torch.zeros_like(convolution.weight, dtype=torch.bool)
    mask.flatten(2)[..., 1] = True
    taps = convolution.weight[0, 0].numel()
    problem = f"0: weights at one of {taps} taps only, so that neighbouring positions do not mix"
    assert row(convolution, mask).warnings == [problem]
    mask.flatten(2)[2, 3, 0] = True
    assert (row(convolution, mask).taps, row(convolution, mask).warnings) == ((2, taps), [])
    pointwise = nn.Conv2d(4, 4, 1)
    assert row(pointwise, torch.ones_like(pointwise.weight, dtype=torch.bool)).warnings == []


def test_the_score_is_that_of_the_weight_over_the_gain():
    linear = nn.Linear(3, 3)
    with torch.no_grad():
        linear.weight.copy_(2.0 * torch.eye(3))
    assert row(linear, torch.ones(3, 3).bool(), gain=2.0).orthogonality == pytest.approx(0.0, abs=1e-6)


def test_an_empty_layer_has_one_problem():
    found = row(nn.Linear(4, 3), torch.zeros(3, 4).bool())
    assert found.warnings == ["0: empty, nothing passes"]
    assert set(found.problems) <= set(PROBLEMS)


def test_a_layer_says_why_it_has_other_units():
    modules = nn.Conv2d(16, 16, 3), nn.Linear(16, 10), nn.Linear(32, 32)
    masks = [torch.ones_like(module.weight, dtype=torch.bool) for module in modules]
    notes = [row(*each, structure="block:16").note for each in zip(modules, masks, strict=True)]
    assert notes == ["entries: a kernel of 3 x 3", "entries: 16 does not divide its sides", ""]


@pytest.mark.parametrize(
    ("asked", "got", "floor", "note"),
    [
        (4, 4, 3, ""),
        (5, 4, 3, "gave 1"),
        (3, 5, 3, "took 2"),
        (2, 3, 3, "raised to its floor 3"),
        (2, 2, 3, "partial: floor 3"),
    ],
)
def test_a_layer_says_what_became_of_its_count(asked, got, floor, note):
    mask = torch.zeros(9, dtype=torch.bool)
    mask[:got] = True
    (layer,) = find_layers(nn.Linear(3, 3)).values()
    own = {"asked": asked, "floor": floor, "overlap": None, "gain": 1.0, "structure": "entries"}
    assert row_of(layer, layer.weight(), mask.view(3, 3), **own).note == note


def test_a_frozen_layer_keeps_its_start():
    linear = nn.Linear(3, 3).requires_grad_(False)
    assert row(linear, torch.ones(3, 3).bool(), include=["0"]).note == "frozen: keeps this start"


def test_output_channels_whose_active_weights_are_all_zero_are_noted():
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3))
    report = orthosparse.sparsify(model, 0.1, distribution="uniform", generator=torch.Generator().manual_seed(1))
    for row, conv, mask in zip(report.rows, model, orthosparse.masks_of(model).values(), strict=True):
        zero = conv.weight.flatten(1).eq(0).all(1) & mask.flatten(1).any(1)
        assert (f"outputs that start at zero: {int(zero.sum())}" in row.note) == bool(zero.any())
    assert "outputs that start at zero" in report.rows[0].note
    assert "outputs that start at zero" not in report.rows[1].note
