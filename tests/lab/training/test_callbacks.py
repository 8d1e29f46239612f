import csv
import io
import sys
import types

import pytest
from rich.console import Console

from orthosparse.lab.training import Progress, fit
from orthosparse.lab.training.callbacks import CsvLog, tensorboard_log, wandb_log


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


@pytest.mark.parametrize("terminal", [False, True])
def test_the_speed_of_an_epoch_is_its_samples_over_its_seconds(assembled, terminal):
    state, text = assembled(batch=1000), io.StringIO()  # the second batch is a short one
    fit(state, [Progress(Console(file=text, force_terminal=terminal, width=120, _environ={}))])
    seconds = [metrics["seconds"] for metrics in state.histories[0]]
    for before, after in zip([0.0, *seconds], seconds, strict=False):
        assert f"{len(state.loader.split) / (after - before):,.0f} images/s" in text.getvalue()


def test_csv_holds_the_history(assembled, tmp_path):
    state = assembled()
    fit(state, [CsvLog(tmp_path, {})])
    with (tmp_path / "metrics.csv").open() as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    assert rows == state.histories[0]


def test_tensorboard_can_read_the_curves_back(assembled, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    state = assembled()
    fit(state, [tensorboard_log(tmp_path, {})])
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    points = events.Scalars("validation_accuracy")
    assert [point.step for point in points] == [1, 2]
    assert points[-1].value == pytest.approx(state.histories[0][-1]["validation_accuracy"])


def test_wandb_is_given_settings_and_epochs_under_a_name_that_resuming_finds_again(assembled, tmp_path, monkeypatch):
    calls = []

    class Run:
        def log(self, metrics, step):
            calls.append((step, metrics["loss"]))

        def finish(self):
            calls.append("finished")

    def init(**given):
        calls.append((given["id"], given["resume"], given["config"]))
        return Run()

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    state = assembled()
    fit(state, [wandb_log(tmp_path, {"seed": 1})])
    losses = [entry["loss"] for entry in state.histories[0]]
    assert calls == [(tmp_path.name, "allow", {"seed": 1}), (1, losses[0]), (2, losses[1]), "finished"]
