import io

from rich.console import Console

from orthosparse.lab.training import Progress, fit


def _run(assembled, terminal):
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=120, _environ={})
    fit(assembled(), [Progress(console)])
    return text.getvalue()


def test_off_a_terminal_there_is_a_plain_line_for_each_epoch(assembled):
    lines = _run(assembled, terminal=False).splitlines()
    assert len(lines) == 2
    for number, line in enumerate(lines, 1):
        assert line.startswith(f"epoch   {number}")
        assert all(word in line for word in ("loss", "accuracy", "validation", "images/s"))
        assert "\x1b" not in line


def test_on_a_terminal_there_is_a_bar_and_the_cursor_comes_back(assembled):
    text = _run(assembled, terminal=True)
    assert "epoch" in text
    assert text.rindex("\x1b[?25h") > text.index("\x1b[?25l")  # hidden, then shown again
