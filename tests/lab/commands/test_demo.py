import re

import pytest
import torch

from orthosparse.lab.cli import main


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """One run of the demo in small sizes: its folder, and what it printed."""
    import contextlib
    import io

    out, printed = tmp_path_factory.mktemp("demo"), io.StringIO()
    state = torch.default_generator.get_state()
    with contextlib.redirect_stdout(printed):
        assert main(["demo", "--quick", "--out", str(out), "--debug"]) == 0
    assert torch.equal(torch.default_generator.get_state(), state)
    return out, printed.getvalue()


def test_the_demo_prints_the_sampler_beside_qr_and_a_mask_and_then_the_accuracies(quick):
    _, printed = quick
    lines = {line.split("  ")[0].strip(): line for line in printed.splitlines() if line.strip()}
    assert "0.100098" in next(line for line in lines.values() if "Givens rotations" in line)
    assert any("masked at random" in line for line in lines.values())
    for start in ("dense", "base", "AI", "EOI"):
        assert re.search(rf"^ *{start} +[01]\.\d+ .* \d+\.\d %", printed, re.MULTILINE), start


def test_the_demo_writes_one_page_that_needs_nothing_else_and_a_picture(quick):
    out, _ = quick
    assert sorted(path.name for path in out.iterdir()) == ["index.html", "sampler.png"]
    page = (out / "index.html").read_text()
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)
    assert "://" not in page
    assert page.count("<svg") == 5
    assert page.count("<img") == 5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--epochs", "0"], "epochs: expected a positive integer; got 0"),
        (["--density", "3"], "density: expected a number in [0, 1]; got 3.0"),
        (["--density", "0"], "density: expected at least 234 entries, the sum of the floors; got 0"),
    ],
)
def test_wrong_numbers_are_one_line_before_anything_is_done(tmp_path, capsys, given, message):
    assert main(["demo", *given, "--quick", "--out", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert printed.err.startswith(f"error: {message}")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(("given", "epochs"), [([], 2), (["--epochs", "3"], 3), (["--epochs", "1"], 1)])
def test_quick_has_its_own_epochs_and_takes_those_that_are_given(tmp_path, capsys, given, epochs):
    assert main(["demo", "--quick", "--out", str(tmp_path), *given]) == 0
    assert f"on digits, {epochs} epochs" in " ".join(capsys.readouterr().out.split())
