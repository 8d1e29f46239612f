"""What the documentation says is so: its code runs and prints what is shown, its commands exist, its site builds."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections import defaultdict
from html import unescape
from itertools import pairwise
from pathlib import Path
from statistics import mean, median, stdev

import pytest
import torch
import typer

import orthosparse
from lab.chromium import CHROMIUM, FLAGS, WHY_NOT
from orthosparse.lab.cli import app
from orthosparse.lab.paper import ITEMS
from orthosparse.lab.paper._chapters import chapters_of
from orthosparse.lab.paper._rows import read_rows

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
    return str(page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT))


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


WITH_COMMANDS = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "results" / "README.md"]
CONSOLE = [(page, line) for page in WITH_COMMANDS for line in commands(page)]


@pytest.mark.parametrize(("page", "line"), CONSOLE, ids=[f"{name(page)}-{line[:50]}" for page, line in CONSOLE])
def test_every_command_exists_with_its_options(page, line):
    words = shlex.split(line, comments=True)
    assert words[0] in KNOWN, words[0]
    if words[0] == "make":
        assert set(words[1:]) <= TARGETS
    if "orthosparse" in words:
        _parse(words[words.index("orthosparse") + 1 :])
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
    with pytest.raises(Exception, match=r"(?i)no such (option|command)|a valid (number|float)"):
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
            if (fields["model"], fields["distribution"], fields["density"]) == ("resnet32", "erk", 0.1):
                runs[fields["scheme"], fields["dynamic"]].append(100 * row["metrics"]["test_accuracy"])
    assert [len(each) for each in runs.values()] == [3] * 6
    ours = {f"{mean(each):.2f} ({stdev(each):.2f})" for each in runs.values()}
    for page in ("tutorials/rigl.md", "choosing.md"):
        shown = re.findall(r"\b(?:89|90)\.\d\d \(\d\.\d\d\)", (DOCS / page).read_text())
        assert sorted(shown) == sorted(ours), page


CITED = {  # what the page on choosing cites, and where it stands
    "evidence/claims.md": "11.35 95.72 95.94 97.43 10.00 52.18 78.48 81.06",
    "items.md": "90.43 89.42 91.08 90.90",
    "evidence/schemes.md": "10.2 89.7 92.2 73.3 87.1 74.4 89.3 86.9",
    "evidence/spectra.md": "2.1e-05 0.19 0.11 1.1e-05",
    "evidence/structures.md": "91.3",
    "evidence/depthwise_trained.md": "91.6 83.8 89.5 72.8",
    "evidence/floors.md": "0.0004 0.0047",
    "evidence/aligned.md": "20.56 94.30 2.3 2.9 4.7 4.9",
    "when_does_sparsity_pay.md": "1.74 2.05 2.79 3.47 1.18 3.02 3.17 3.40 3.83 "
    "1.51 14.2 30.3 4.1 3.4 0.28 0.70 0.39 0.47",
}


@pytest.mark.parametrize(("source", "numbers"), CITED.items(), ids=CITED)
def test_the_page_on_choosing_cites_what_was_measured(source, numbers):
    page, measured = ((DOCS / name).read_text() for name in ("choosing.md", source))
    for number in numbers.split():
        alone = re.compile(rf"(?<![\d.]){re.escape(number)}(?![\d]|\.\d)")
        assert alone.search(page), number
        assert alone.search(measured), number


def test_the_epochs_of_the_deepest_network_take_as_long_as_its_rows_say():
    rows = map(json.loads, (ROOT / "results" / "deep_networks.jsonl").read_text().splitlines()[1:])
    whole = [row for row in rows if (row["fields"]["model"], row["fields"]["epochs"]) == ("cnn1000", 100)]
    starts = {"ai" if row["fields"]["scheme"] == "ai" else row["fields"]["density"]: row for row in whole}
    ends = {start: row["curves"]["seconds"][-51:] for start, row in starts.items()}
    took = {start: median(end - begin for begin, end in pairwise(found)) for start, found in ends.items()}
    ai, dense, eoi = (f"{took[start]:.1f}" for start in ("ai", 1.0, 0.125))
    for page, said in {
        "decisions/2026-11-15-ensemble.md": [f"{ai} s from AI, {dense} s dense", f"{eoi} s from EOI"],
        "tutorials/reproduce.md": [f"one epoch | {ai} to {dense} s | {eoi} s |"],
        "../results/README.md": [f"{eoi} s (EOI), {dense} s (dense) and {ai} s\n  (AI)"],
    }.items():
        assert [words for words in said if words not in (DOCS / page).read_text()] == [], page


def test_the_accuracy_that_differs_most_from_the_papers_is_the_one_that_the_page_names():
    rows, problems = read_rows(sorted((ROOT / "results").glob("*.jsonl")))
    assert not problems
    found = {}
    for table in (table for chapter in chapters_of(ITEMS, rows) for table in chapter.rendered.tables):
        for line, cells in zip(table.lines, table.cells, strict=True):
            for column, cell in zip(table.columns, cells, strict=True):
                if cell.difference is not None and cell.error and "seconds" not in table.title.lower():
                    found[table.title, line.key, column.key] = abs(cell.difference / cell.error)
    (most, ratio), (second, other), *_ = sorted(found.items(), key=lambda each: -each[1])
    page = " ".join((DOCS / "does_the_paper_hold.md").read_text().split())
    assert most[1:] == ("sao/eoi", "mlp1000/mnist")
    assert second[1] == "grasp/base"
    assert "ends at 96.46(0.10), and the paper has 97.43(0.05)" in page
    assert f"That is {ratio:.0f} standard errors; the next is {other:.0f}" in page


def test_every_public_name_is_in_the_reference():
    pages = (DOCS / "reference").glob("*.md")
    named = {entry.rpartition(".")[2] for page in pages for entry in re.findall(r"^::: (\S+)", page.read_text(), re.M)}
    assert set(orthosparse.__all__) - {"DISTRIBUTIONS", "SCHEMES"} <= named  # tables, whose entries have two pages


@pytest.mark.parametrize("page", ["orthosparse", "distributions", "schemes"])
def test_the_reference_shows_functions_and_classes_not_the_files_they_are_in(page):
    entries = re.findall(r"^::: (\S+)", (DOCS / "reference" / f"{page}.md").read_text(), re.M)
    assert [name for name in entries if (ROOT / "src" / f"{name.replace('.', '/')}.py").exists()] == []


def test_every_example_is_shown_on_a_page():
    shown = {Path(path).name for page in PAGES for path in INCLUDED.findall(page.read_text())}
    scripts = {path.name for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".sh")}
    assert scripts <= shown


def test_every_language_of_a_block_is_one_that_is_tested():
    languages = {language for page in PAGES for language, _ in blocks(page)}
    assert languages <= {"python", "text", "console"}


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The site, and what the build said."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed")
    folder = tmp_path_factory.mktemp("built") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stderr


def test_the_site_builds_without_a_warning_and_asks_nobody_for_anything(site):
    folder, said = site
    assert "WARNING" not in said
    for page in folder.rglob("*.html"):
        loaded = re.findall(r'(?:src|<link[^>]* href)="(https?:[^"]+|//[^"]+)"', page.read_text())
        assert loaded == [], page


def browsed(address, profile, *more):
    """Return the page as a browser has it after a while; nothing but the disk can be reached."""
    flags = ["--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}", "--window-size=1400,1000", *more]
    command = [CHROMIUM, *FLAGS, *flags, "--dump-dom", address]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT)
@pytest.mark.parametrize("page", ["index.html", "howto/scheme.html"])
def test_the_search_works_from_the_disk(site, tmp_path, page):
    shown = browsed(f"{(site[0] / page).as_uri()}?q=rewirer", tmp_path / "profile", "--virtual-time-budget=20000")
    assert re.search(r"md-search-result__meta\">\s*[1-9]\d* matching documents", shown)
    assert "tutorials/rigl.html" in shown[shown.index("md-search-result__list") :]


WIDTHS = """<body><script>
const pages = PAGES, told = {};
const next = () => {
  const page = pages.shift();
  if (!page) { document.body.dataset.told = JSON.stringify(told); return; }
  const frame = document.createElement("iframe");
  frame.style = "width:400px;height:800px;border:0";
  frame.onload = () => { told[page] = frame.contentDocument.documentElement.scrollWidth; frame.remove(); next(); };
  frame.src = page;
  document.body.append(frame);
};
next();
</script></body>"""


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT)
def test_no_page_is_wider_than_400_pixels(site, tmp_path):
    folder, _ = site
    pages = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.html") if path.name != "404.html")
    (folder / "widths.html").write_text(WIDTHS.replace("PAGES", json.dumps(pages)))
    own = ["--allow-file-access-from-files", "--virtual-time-budget=120000"]
    shown = browsed((folder / "widths.html").as_uri(), tmp_path / "profile", *own)
    (folder / "widths.html").unlink()
    (reported,) = re.findall(r'data-told="([^"]*)"', shown)
    widths = json.loads(unescape(reported))
    assert set(widths) == set(pages)
    assert {page: width for page, width in widths.items() if width > 400} == {}
