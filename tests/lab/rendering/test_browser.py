"""The pages in a real browser: they show something, report nothing, and ask the network for nothing."""

import json
import re
import subprocess
from html import unescape

import pytest
from matplotlib.image import imread

from lab.chromium import CHROMIUM, FLAGS, WHY_NOT
from orthosparse.lab.cli import main
from orthosparse.lab.paper.report import write_report
from orthosparse.lab.rendering.contents import Cell, Column, Figure, Page, Row, Section, Series, Table
from orthosparse.lab.rendering.html import write_page

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT),
]
SHOWN = [*FLAGS, "--hide-scrollbars", "--window-size=1100,1600"]


@pytest.fixture
def screenshot(tmp_path):
    """Open a page, every host name unknown, and return its pixels and what the browser's console said."""

    def take(page, *more):
        picture = tmp_path / "shot.png"
        offline = ["--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={tmp_path / 'profile'}"]
        command = [CHROMIUM, *SHOWN, *offline, f"--screenshot={picture}", *more, page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        return imread(picture), [line for line in done.stderr.splitlines() if "CONSOLE" in line]

    return take


def colours(pixels):
    return {tuple(pixel) for pixel in (pixels[::2, ::2, :3].reshape(-1, 3) * 255).astype(int).tolist()}


def test_the_demos_page_is_drawn_light_and_dark_without_a_word_on_the_console(tmp_path, screenshot):
    assert main(["demo", "--quick", "--out", str(tmp_path)]) == 0
    light, said = screenshot(tmp_path / "index.html")
    assert said == []
    dark, said = screenshot(tmp_path / "index.html", "--force-dark-mode")
    assert said == []
    for pixels, ground in ((light, (253, 253, 252)), (dark, (20, 23, 27))):
        assert pixels.shape[:2] == (1600, 1100)
        assert tuple((pixels[5, 5, :3] * 255).round().astype(int)) == ground
        assert len(colours(pixels)) > 100  # curves, text, rules


def test_an_error_on_a_page_would_be_seen(tmp_path, screenshot):
    """The other tests' empty console means something: this page breaks its own rules, and that is told."""
    path = tmp_path / "page.html"
    write_page(Page("Broken", "It asks for a picture on the network."), path)
    path.write_text(path.read_text().replace("</body>", '<img src="https://example.org/x.png"></body>'))
    _, said = screenshot(path)
    assert any("Content Security Policy" in line for line in said)


PROBE = """<script>
document.querySelectorAll("details").forEach((each) => (each.open = true));
const boxes = [...document.querySelectorAll(".table, figure, nav, main")];
const wide = boxes.filter((each) => each.scrollWidth > each.clientWidth + 1);
const [scroll, names] = [document.documentElement.scrollWidth, wide.map((each) => each.textContent.slice(0, 60))];
document.body.dataset.reported = JSON.stringify({ width: innerWidth, scroll, wide: names });
</script></body>"""
FRAME = """<body style="margin:0"><iframe src="page.html" style="width:{width}px;border:0"></iframe><script>
const frame = document.querySelector("iframe");
onload = () => (document.body.dataset.reported = frame.contentDocument.body.dataset.reported);
</script></body>"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The three pages that the program writes, each alone in a folder."""
    folder = tmp_path_factory.mktemp("pages")
    assert main(["demo", "--quick", "--out", str(folder / "demo")]) == 0
    source = folder / "a_file_with_a_long_name.py"  # in the title, as a word that is wider than a narrow page
    source.write_text(
        "from orthosparse.lab.models.resnet import resnet32\n\n\n"
        "def network():\n    return resnet32(classes=10, in_shape=(3, 32, 32))\n"
    )
    inspect = ["inspect", f"{source}:network", "--input", "3x32x32", "--density", "0.1", "--samples", "2"]
    assert main([*inspect, "--out", str(folder / "inspect")]) == 0
    write_report([], folder / "report" / "report.html")
    found = {name: next((folder / name).glob("*.html")) for name in ("demo", "inspect", "report")}
    for name, page in found.items():
        text = page.read_text(encoding="utf-8")
        (folder / name / "page.html").write_text(text.replace("</body>", PROBE), encoding="utf-8")
    return folder


def reported(page, folder, *flags):
    """What a script of the page has reported, and what the browser has said."""
    command = [CHROMIUM, *FLAGS, *flags, f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=4000"]
    done = subprocess.run(
        [*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    (found,) = re.findall(r'data-reported="([^"]*)"', done.stdout)
    return json.loads(unescape(found)), done.stderr


@pytest.mark.parametrize("width", [1300, 400, 320])
@pytest.mark.parametrize("name", ["demo", "inspect", "report"])
def test_nothing_is_wider_than_its_page(pages, tmp_path, name, width):
    frame = pages / name / f"frame{width}.html"
    frame.write_text(FRAME.format(width=width))
    found, _ = reported(frame, tmp_path, "--allow-file-access-from-files", "--window-size=1400,1000")
    assert found["width"] == width
    assert found["scroll"] <= width
    assert found["wide"] == []


HOVER = """<script>
const point = document.querySelectorAll("circle.hover")[1], box = point.getBoundingClientRect();
const at = (x, y) => point.dispatchEvent(new PointerEvent("pointermove", { clientX: x, clientY: y, bubbles: true }));
const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
at(x + 5, y - 5);
const near = [tip.hidden, tip.textContent, point.classList.contains("near")];
at(x + 300, y + 300);
document.body.dataset.reported = JSON.stringify({ near, far: tip.hidden });
</script></body>"""


def test_the_nearest_point_says_series_axes_and_values_beside_the_pointer(tmp_path):
    figure = Figure("Loss", "epoch", "training loss", [Series("EOI & co", [1, 2, 9], [3.0, 2.5, 1.0], "eoi")])
    page = tmp_path / "page.html"
    write_page(Page("T", "L", sections=[Section("S", figures=[figure])]), page)
    page.write_text(page.read_text().replace("</body>", HOVER))
    found, said = reported(page, tmp_path, "--window-size=1300,900")
    assert found["near"] == [False, "EOI & co: epoch 2, training loss 2.5", True]
    assert found["far"] is True
    assert "CONSOLE" not in said, said


@pytest.fixture
def opened(tmp_path):
    """Open a page in a frame of a width, run a script there, and return what the script returns."""

    def run(page, width, script, *, sandbox=""):
        frame = (
            f'<body style="margin:0"><iframe {sandbox} src="{page.name}" '
            f'style="width:{width}px;height:600px;border:0"></iframe>'
            f"<script>onload = () => {{ const inside = document.querySelector('iframe').contentWindow; "
            f"document.body.dataset.reported = JSON.stringify(((window, document) => {{ {script} }})"
            f"(inside, inside.document)); }};</script></body>"
        )
        outer = page.with_name("frame.html")
        outer.write_text(frame, encoding="utf-8")
        return reported(outer, tmp_path, "--allow-file-access-from-files")[0]

    return run


@pytest.mark.parametrize("width", [1300, 400])
def test_a_link_leads_to_a_heading_that_nothing_covers(tmp_path, opened, width):
    sections = [Section(f"S{each}", "Words. " * 200, anchor=f"s{each}") for each in range(9)]
    filters = (["ResNet32"], ["a method with a name that takes much room, and then some"])
    write_page(Page("T", "L", sections=sections, filters=filters), tmp_path / "page.html")
    script = """document.getElementById("s4").scrollIntoView();
    const box = document.querySelector("#s4 h2").getBoundingClientRect();
    return document.elementFromPoint(box.left + 5, box.top + box.height / 2)?.tagName ?? "nothing";"""
    assert opened(tmp_path / "page.html", width, script) == "H2"


def test_a_note_is_read_with_the_keyboard(tmp_path, opened):
    table = Table([Column("score")], [Row([Cell("59.01", note="8 of 100 epochs")])])
    write_page(Page("T", "L", sections=[Section("S", tables=[table])]), tmp_path / "page.html")
    script = """const note = document.querySelector("td [title]");
    note.focus();
    return [document.activeElement === note, window.getComputedStyle(note, "::after").content];"""
    assert opened(tmp_path / "page.html", 400, script) == [True, '"8 of 100 epochs"']


@pytest.mark.parametrize(("sandbox", "shown"), [('sandbox="allow-same-origin"', False), ("", True)])
def test_without_scripts_nothing_is_shown_that_needs_them(tmp_path, opened, sandbox, shown):
    page = Page(
        "T", "L", filters=(["ResNet32"], ["EOI"]), runs='[{"name": "r", "seed": 1, "metrics": {}, "curves": {}}]'
    )
    write_page(page, tmp_path / "page.html")
    script = """return ["nav", "#runs"].map((each) => document.querySelector(each).checkVisibility());"""
    assert opened(tmp_path / "page.html", 1300, script, sandbox=sandbox) == [shown, shown]
