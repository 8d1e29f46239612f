"""The report: every item in every format, on one page that loads without a network, filters and shows runs."""

import csv
import io
import json
import re
import subprocess
from html.parser import HTMLParser

import pytest

from lab.chromium import CHROMIUM, FLAGS
from lab.paper.rows import row_of
from orthosparse.lab.experiments.mask_picture import MaskPicture
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.paper import ITEMS
from orthosparse.lab.paper.report import FORMATS, report_of, write_report

EOI = Training("resnet32", "cifar10", 0.1)
BASE = Training("resnet32", "cifar10", 0.1, scheme="base")
CURVES = {"loss": [1.5, 0.5], "validation_accuracy": [0.5, 0.75]}
SHOWN = [*FLAGS, "--window-size=1400,2000", "--virtual-time-budget=5000"]


@pytest.fixture
def rows():
    return [
        row_of(EOI, 1, test_accuracy=0.8955, curves=CURVES),
        row_of(EOI, 2, test_accuracy=0.8975, curves=CURVES),
        row_of(BASE, 1, test_accuracy=0.8931, curves=CURVES, device="another <machine>"),
        row_of(MaskPicture("eoi", size=4, density=0.5), rows=4, columns=4, count=8, curves={"mask": [1, 0] * 8}),
    ]


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def test_the_page_has_every_item_and_nothing_from_elsewhere(rows):
    page = report_of(rows)
    tags = Tags(page).found
    assert {attributes.get("id") for tag, attributes in tags if tag == "section"} - {None} == {*ITEMS, "runs"}
    assert all(attributes["src"].startswith("data:") for _, attributes in tags if attributes.get("src"))
    links = [attributes["href"] for _, attributes in tags if "href" in attributes]
    assert all(link.startswith(("#", "data:")) for link in links)
    assert "default-src 'none'" in page
    assert "://" not in page


def test_ours_stands_beside_the_paper_with_seeds_and_difference(rows):
    page = report_of(rows)
    assert "89.65(0.14) n=2" in page
    assert "-0.14" in page  # 89.65 - 89.79
    assert "89.31 n=1" in page
    assert page.count("not measured") > 300
    assert "3 rows: toy machine (2), another &lt;machine&gt; (1);" in page
    assert "2 rows: toy machine;" in page


def test_names_of_machines_are_escaped(rows):
    page = report_of(rows)
    assert "another &lt;machine&gt;" in page
    assert "<machine>" not in page


def test_runs_are_embedded_and_rows_of_no_item_are_left_out(rows):
    page = report_of([*rows, row_of(Training("mlp", "digits", 0.5), test_accuracy=0.123, curves=CURVES)])
    (text,) = re.findall(r'id="rows">(.*?)</script>', page)
    runs = json.loads(text)
    expected = sorted([(EOI.label(), 1), (EOI.label(), 2), (BASE.label(), 1)])
    assert [(run["name"], run["seed"]) for run in runs] == expected
    assert runs[0]["curves"]["loss"] == {"step": 1, "y": [1.5, 0.5]}


def test_csv_has_a_line_for_every_cell(rows):
    lines = list(csv.DictReader(io.StringIO(report_of(rows, format="csv"))))
    (eoi,) = [
        line
        for line in lines
        if (line["item"], line["line"], line["column"]) == ("contemporary", "ERK EOI", "ResNet32 (CIFAR-10)")
    ]
    assert (eoi["paper_mean"], eoi["paper_std"], eoi["our_mean"], eoi["seeds"]) == ("89.79", "0.38", "89.65", "2")
    assert float(eoi["difference"]) == pytest.approx(-0.14)
    measured = [line for line in lines if line["our_mean"]]
    assert {line["item"] for line in measured} == {"contemporary", "activations", "angles", "dynamic"}


def test_markdown_and_latex_hold_the_tables(rows):
    text = report_of(rows, format="md")
    assert "| ERK | EOI | ***89.79(0.38)*** | ***89.65(0.14) n=2*** | -0.14 ± 0.20 |" in text
    assert all(f"`{name}`" in text for name in ITEMS)
    tex = report_of(rows, format="tex")
    assert r"\underline{\textbf{89.65(0.14) n=2}}" in tex
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}") > 17
    assert r"12.5 \%" in tex


@pytest.mark.parametrize("name", FORMATS)
def test_no_rows_make_a_report_too(name, tmp_path):
    out = tmp_path / "deep" / f"report.{name}"
    write_report([], out, format=name)
    assert out.read_text(encoding="utf-8").strip()


def test_a_report_that_does_not_fit_leaves_the_old_one(tmp_path, small_disk):
    out = tmp_path / "report.md"
    write_report([], out, format="md")
    before = out.read_text(encoding="utf-8")
    with small_disk(2**12), pytest.raises(OSError, match=r"report\.md"):
        write_report([], out, format="md")
    assert out.read_text(encoding="utf-8") == before


def test_an_unknown_format_is_named(tmp_path):
    with pytest.raises(ValueError, match="format: expected one of csv, html, md, tex; got 'pdf'"):
        write_report([], tmp_path / "report.pdf", format="pdf")
    assert not list(tmp_path.iterdir())


def test_shorter_trainings_are_marked():
    page = report_of([row_of(Training("resnet32", "cifar10", 0.1, epochs=20), test_accuracy=0.8)])
    assert 'title="20 of 200 epochs">80.00 n=1 *' in page
    assert "1 more with another number of epochs" in page


def test_trainings_in_another_precision_are_marked_and_counted():
    rows = [row_of(Training("resnet32", "cifar10", 0.1, precision="bf16"), test_accuracy=0.8)]
    page = report_of(rows)
    assert 'title="200 epochs in bf16 instead of tf32">80.00 n=1 *' in page
    assert "1 more in another precision" in page
    tex = report_of(rows, format="tex")
    assert r"80.00 n=1\textsuperscript{1} & " in tex
    assert r"\textsuperscript{1} 200 epochs in bf16 instead of tf32\par" in tex
    rows += [row_of(Training("resnet32", "cifar10", 0.1, precision="fp32", epochs=20), test_accuracy=0.7)]
    rows += [
        row_of(EOI, test_accuracy=0.9),
        row_of(Training("resnet32", "cifar10", 0.1, epochs=200), test_accuracy=0.6),
    ]
    text = report_of(rows, format="md")
    said = "1 more in another precision, 1 more with another number of epochs and in another precision"
    pairs = len(ITEMS["contemporary"].experiments()) * len(ITEMS["contemporary"].SEEDS)
    assert f"`contemporary`: 1 of {pairs} pairs, {said} measured" in text
    assert "90.00 n=1" in text


def test_densities_that_were_trained_otherwise_are_in_the_table_and_not_in_the_figure():
    def rows(densities, **change):
        return [row_of(Training("resnet56", "cifar10", each, **change), test_accuracy=0.8) for each in densities]

    rendered = ITEMS["density_sweep"].render([*rows((0.1, 0.2)), *rows((0.4,), precision="bf16")])
    (series,) = rendered.figures[0].series
    assert list(series.xs) == [0.1, 0.2]
    assert sum(cell.ours is not None for cells in rendered.tables[0].cells for cell in cells) == 3


def test_the_tiny_versions_say_what_they_are(tiny_rows):
    page = report_of([row for name in ("angles", "conv_details") for row in tiny_rows(name)], smoke=True)
    assert "Tiny versions" in page
    assert "Tiny versions" not in report_of([])


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_the_page_loads_filters_and_draws_runs_without_errors(rows, tmp_path):
    probe = """<script>
    const box = (id) => document.querySelector("#" + id + " .table");
    const seen = (element) => element.offsetParent !== null;
    const choose = (id, value) => { $(id).value = value; $(id).dispatchEvent(new Event("change")); };
    const reported = {};
    reported.before = [...box("contemporary").querySelectorAll("tbody tr")].filter(seen).length;
    choose("method", "GraSP");
    reported.lines = [...box("contemporary").querySelectorAll("tbody tr")].filter(seen).length;
    choose("model", "ResNet32");
    const heads = [...box("contemporary").querySelectorAll("thead tr:first-child th")];
    reported.columns = heads.filter(seen).map((th) => th.textContent);
    reported.deep = seen(box("deep_networks"));
    reported.spectra = seen(box("singular_values"));
    choose("model", ""); choose("method", "EOI");
    const starts = [...box("contemporary").querySelectorAll("tbody tr")].filter(seen);
    reported.starts = starts.map((tr) => tr.cells[1].textContent);
    choose("method", "");
    reported.after = [...box("contemporary").querySelectorAll("tbody tr")].filter(seen).length;
    reported.runs = $("run").options.length;
    reported.charts = document.querySelectorAll("#shown figure").length;
    $("search").value = "base"; $("search").dispatchEvent(new Event("input"));
    reported.found = $("run").options.length;
    document.body.dataset.reported = JSON.stringify(reported);
    </script></body>"""
    page = tmp_path / "page.html"
    page.write_text(report_of(rows).replace("</body>", probe), encoding="utf-8")
    done = browse(page, "--dump-dom", tmp_path=tmp_path)
    (attributes,) = [attributes for tag, attributes in Tags(done.stdout).found if tag == "body"]
    reported = json.loads(attributes["data-reported"])
    assert reported["before"] == reported["after"] == 17
    assert reported["lines"] == 3
    assert reported["columns"] == ["method", "init", "ResNet32 (CIFAR-10)"]
    assert reported["deep"] is False
    assert reported["spectra"] is False
    assert reported["starts"] == ["EOI"] * 5
    assert (reported["runs"], reported["charts"], reported["found"]) == (3, 2, 1)
    assert "CONSOLE" not in done.stderr, done.stderr


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_a_screenshot_of_the_page_is_not_empty(tiny_rows, tmp_path):
    page, shot = tmp_path / "page.html", tmp_path / "page.png"
    tiny = [row for name in ("angles", "efficiency", "mask_pictures", "conv_details") for row in tiny_rows(name)]
    write_report(tiny, page, smoke=True)
    done = browse(page, f"--screenshot={shot}", tmp_path=tmp_path)
    from matplotlib.image import imread

    assert imread(shot)[..., :3].std() > 0.02
    assert "CONSOLE" not in done.stderr, done.stderr


def browse(page, *more, tmp_path):
    command = [CHROMIUM, *SHOWN, f"--user-data-dir={tmp_path / 'profile'}", *more, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
