"""What a notebook shows: well-formed, complete, and nothing of a name is taken for markup."""

import xml.etree.ElementTree as ElementTree

import pytest
import torch
from torch import nn

import orthosparse
from orthosparse import isometry


class Odd(nn.Module):
    """A model whose layers have names that are markup."""

    def __init__(self):
        super().__init__()
        self.add_module("<script>&\"'", nn.Linear(4, 4))
        self.add_module("out", nn.Linear(4, 3))

    def forward(self, x):
        for module in self.children():
            x = module(x)
        return x


@pytest.fixture(scope="module")
def shown():
    """Every result that a notebook shows as HTML, by the name of what gave it."""
    generator = torch.Generator().manual_seed(0)
    model = Odd()
    report = orthosparse.sparsify(model, 0.5, scheme="base", generator=generator)
    x, y = torch.randn(5, 4, generator=generator), torch.tensor([0, 1, 2, 0, 1])
    return {
        "sparsify": report,
        "singular_values": isometry.singular_values(model, x),
        "layer_singular_values": isometry.layer_singular_values(model),
        "orthogonality_score": isometry.orthogonality_score(model),
        "effective_density": isometry.effective_density(model, x),
        "gradient_flow": isometry.gradient_flow(model, None, (x, y)),
        "critical_point": isometry.critical_point("relu"),
    }


NAMES = [
    "sparsify",
    "singular_values",
    "layer_singular_values",
    "orthogonality_score",
    "effective_density",
    "gradient_flow",
    "critical_point",
]
BY_LAYER = ["sparsify", "layer_singular_values", "orthogonality_score", "effective_density", "gradient_flow"]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_well_formed(shown, name):
    page = ElementTree.fromstring(f"<div>{shown[name]._repr_html_()}</div>")
    assert "".join(page.itertext()).strip()
    assert page.find(".//script") is None


@pytest.mark.parametrize("name", BY_LAYER)
def test_every_layer_has_a_line_with_its_name_as_it_is_and_a_cell_for_every_heading(shown, name):
    page = ElementTree.fromstring(f"<div>{shown[name]._repr_html_()}</div>")
    headings = page.findall(".//th")
    lines = page.findall(".//tbody/tr")
    assert [line[0].text for line in lines] == ["<script>&\"'", "out"]
    assert all(len(line) == len(headings) for line in lines)


def test_a_critical_point_shows_its_values_and_its_note(shown):
    page = ElementTree.fromstring(f"<div>{shown['critical_point']._repr_html_()}</div>")
    cells = dict(zip([each.text for each in page.iter("th")], [each.text for each in page.iter("td")], strict=True))
    assert float(cells["chi"]) == pytest.approx(1.0)
    assert cells["isometry"] == "no"
    assert page.find("p").text == shown["critical_point"].note != ""


def test_tables_by_layer_are_still_dictionaries(shown):
    scores = shown["orthogonality_score"]
    assert isinstance(scores, dict)
    assert repr(scores) == repr(dict(scores))
    assert ElementTree.fromstring(isometry.orthogonality_score(nn.ReLU())._repr_html_()).findall(".//td") == []
