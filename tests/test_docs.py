"""What the documentation says is so: its code runs and prints what is shown, its commands exist, its site builds."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

import pytest
import torch
import typer

from orthosparse.lab.cli import app

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if path.parent.name != "evidence")
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INCLUDED = re.compile(r'--8<-- "([^"]+)"')
TARGETS = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
KNOWN = {"orthosparse", "make", "pip", "python", "torchrun", "sh", "ray", "git"}


def blocks(page):
    return BLOCK.findall(page.read_text())


def name(page):
    return str(page.relative_to(DOCS))


def comparable(printed):
    """Scores at the rounding floor differ from machine to machine, and with them only their digits."""
    return re.sub(r"\b\d\.\de-0[6-9]\b", "(rounding)", printed)


def paged(page):
    """A page as a parameter; what it imports of Hugging Face imports torchvision."""
    marks = [pytest.mark.torchvision] * ("from transformers import" in page.read_text())
    return pytest.param(page, marks=marks, id=name(page))


@pytest.mark.parametrize("page", [paged(page) for page in PAGES if "```python" in page.read_text()])
def test_every_python_block_runs_and_prints_what_is_shown(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "__main__"}
    printed = None
    with torch.random.fork_rng(devices=[]):  # readers' code draws from the global generator
        for number, (language, code) in enumerate(blocks(page)):
            if language == "python":
                exec(compile(code, f"{name(page)} block {number}", "exec"), scope)  # noqa: S102 -- it is our own page
                printed = capsys.readouterr().out
            elif language == "text" and printed is not None:
                assert comparable(printed) == comparable(code), f"{name(page)} block {number}"
                printed = None
            else:
                printed = None


def commands(page):
    """The command lines of a page's console blocks, continued lines joined."""
    for language, code in blocks(page):
        if language == "console":
            for line in code.replace("\\\n", " ").splitlines():
                if line.strip() and not line.startswith("#"):
                    yield line


CONSOLE = [(page, line) for page in PAGES for line in commands(page)]


@pytest.mark.parametrize(("page", "line"), CONSOLE, ids=[f"{name(page)}-{line[:50]}" for page, line in CONSOLE])
def test_every_command_exists_with_its_options(page, line):
    words = shlex.split(line, comments=True)
    assert words[0] in KNOWN, words[0]
    if words[0] == "make":
        assert set(words[1:]) <= TARGETS
    for program in ("orthosparse", "orthosparse.lab.cli"):
        if program in words:
            _parse(words[words.index(program) + 1 :])
    for word in words[1:]:
        if word.startswith(("examples/", "benchmarks/", "tests/")):
            assert (ROOT / word.split(":")[0]).exists(), word  # file.py:function


def _parse(words):
    """Let the program's own parser read the line, without doing what it says."""
    command = typer.main.get_command(app)
    context = command.make_context("orthosparse", list(words), resilient_parsing=False)
    while hasattr(command, "get_command"):
        called, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(called, list(words), parent=context)


@pytest.mark.parametrize("line", ["train --model mlp --data digits --nope 1", "paper walk", "train --density much"])
def test_a_command_that_does_not_exist_is_noticed(line):
    with pytest.raises(Exception, match=r"(?i)no such (option|command)|a valid number"):
        _parse(line.split())


@pytest.mark.parametrize("path", sorted({p for page in PAGES for p in INCLUDED.findall(page.read_text())}))
def test_what_pages_include_is_there(path):
    assert (ROOT / path).is_file()


def test_the_table_of_singular_values_is_that_of_the_committed_rows():
    choices = runpy.run_path(str(ROOT / "benchmarks" / "choices.py"))
    assert choices["markdown"](choices["spectra"](range(0))) == (DOCS / "evidence" / "spectra.md").read_text()


def test_the_accuracies_on_cifar_are_those_of_the_committed_rows():
    runs = defaultdict(list)
    for name in ("contemporary", "dynamic"):
        for line in (ROOT / "results" / f"{name}.jsonl").read_text().splitlines()[1:]:
            row = json.loads(line)
            fields = row["fields"]
            if (fields["distribution"], fields["density"]) == ("erk", 0.1):
                runs[fields["scheme"], fields["dynamic"]].append(100 * row["metrics"]["test_accuracy"])
    assert [len(each) for each in runs.values()] == [3] * 6
    ours = {f"{mean(each):.2f} ({stdev(each):.2f})" for each in runs.values()}
    for page in ("howto/scheme.md", "tutorials/rigl.md"):
        shown = re.findall(r"\b(?:89|90)\.\d\d \(\d\.\d\d\)", (DOCS / page).read_text())
        assert sorted(shown) == sorted(ours), page


def test_every_example_is_shown_on_a_page():
    shown = {Path(path).name for page in PAGES for path in INCLUDED.findall(page.read_text())}
    scripts = {path.name for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".sh")}
    assert scripts <= shown


def test_every_language_of_a_block_is_one_that_is_tested():
    languages = {language for page in PAGES for language, _ in blocks(page)}
    assert languages <= {"python", "text", "console"}


def test_the_site_builds_without_a_warning_and_asks_nobody_for_anything(tmp_path):
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        loaded = re.findall(r'(?:src|<link[^>]* href)="(https?:[^"]+|//[^"]+)"', page.read_text())
        assert loaded == [], page
