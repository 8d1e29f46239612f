"""Reasons for differences."""

from orthosparse.lab.paper import ITEMS
from orthosparse.lab.paper._causes import _CAUSES, cause_of


def test_every_reason_belongs_to_lines_of_a_table_of_its_item():
    for (item, title, name), reason in _CAUSES.items():
        tables = ITEMS[item].render([]).tables
        lines = [line.key for table in tables if title in ("", table.title) for line in table.lines]
        assert any(not name or name in line.split("/") for line in lines), (item, title, name)
        assert reason


def test_a_line_without_a_known_reason_has_none():
    assert cause_of("contemporary", "any", "erk/eoi") == ""
    assert "definition" not in cause_of("contemporary", "any", "grasp/base")
    assert cause_of("contemporary", "any", "grasp/base").startswith("GraSP keeps the largest")
