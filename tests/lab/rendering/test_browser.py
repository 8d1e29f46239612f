"""The pages in a real browser: they show something, report nothing, and ask the network for nothing."""

import subprocess

import pytest
from matplotlib.image import imread

from lab.chromium import CHROMIUM, FLAGS, WHY_NOT
from orthosparse.lab.cli import main
from orthosparse.lab.rendering import Page, write_page

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
