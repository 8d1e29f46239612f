"""The table of forms, and choices read from it."""

import json

import pytest
import torch

from orthosparse.compacting.table import CompactTable, Form, forms_like

TABLE = CompactTable(
    (
        Form("fc1", (64, 32), 0.1, "block:16", 2.5),
        Form("fc2", (8, 64), 0.2, "entries"),
        Form("stem", (8, 3, 3, 3), 0.5, "masked", note="only convolutions of one tap"),
    )
)


def test_the_table_has_a_line_for_every_layer_and_a_sum():
    lines = str(TABLE).splitlines()
    assert lines[2].split() == ["fc1", "64x32", "0.1000", "block:16", "2.50x"]
    assert "one tap" in lines[4]
    assert lines[-1] == "2 of 3 layers hold only their active weights"
    assert ">block:16</td>" in TABLE._repr_html_()


def test_choices_are_read_from_a_table_its_json_and_a_state_dict():
    state = {"fc1.bias": torch.zeros(1)}
    for name, values in (("fc1", torch.zeros(2, 16, 16)), ("fc2", torch.zeros(1, 9)), ("own", torch.zeros(2))):
        state[f"{name}.values"] = values
        if name != "own":  # somebody's parameter of that name
            state |= {f"{name}.row_starts": torch.zeros(2), f"{name}.columns": torch.zeros(2)}
    expected = {"fc1": "block:16", "fc2": "entries"}
    assert forms_like(TABLE) == expected
    assert forms_like(json.loads(json.dumps(TABLE.to_dict()))) == expected
    assert forms_like(state) == expected


@pytest.mark.parametrize("like", [3, "table", [1], {1: 2}])
def test_other_things_are_refused(like):
    with pytest.raises(TypeError, match="like: expected a table"):
        forms_like(like)
