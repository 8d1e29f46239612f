"""What the front page says is so: its code runs, its output is that output, its numbers are those of committed rows."""

import re
from pathlib import Path

import pytest
import torch

from orthosparse.lab.paper import ITEMS, frontpage
from orthosparse.lab.paper._chapters import chapters_of
from orthosparse.lab.paper._rows import read_rows

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
PYTHON = [code for language, code in BLOCKS if language == "python"]


def test_every_python_block_runs_and_the_first_prints_what_is_shown(capsys):
    scope: dict[str, object] = {}
    with torch.random.fork_rng(devices=[]):  # readers' code draws from the global generator
        for number, code in enumerate(PYTHON):
            exec(compile(code, f"README block {number}", "exec"), scope)  # noqa: S102 -- it is our own page
            if number == 0:
                shown = next(code for language, code in BLOCKS if language == "text")
                assert capsys.readouterr().out == shown


def test_the_two_commands_are_targets_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text()
    commands = re.findall(r"^make (\w+)", README, re.MULTILINE)
    assert commands == ["demo", "test"]
    assert all(re.search(rf"^{command}:", makefile, re.MULTILINE) for command in commands)


def test_the_table_is_that_of_the_committed_rows():
    rows, problems = read_rows((ROOT / "results").glob("*.jsonl"))
    assert rows
    assert problems == []
    chapters = chapters_of(ITEMS, rows)
    assert frontpage.inserted(README, frontpage.table(chapters)) == README, "stale: run `make readme-table`"
    everything = (ROOT / "docs" / "items.md").read_text()
    assert frontpage.inserted(everything, frontpage.sections(chapters)) == everything, "stale: run `make readme-table`"


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", README))
def test_every_local_link_leads_somewhere(link):
    assert (ROOT / link).exists()
