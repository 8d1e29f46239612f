"""Shows a sweep: one bar for all pairs and one for each running task; in a log, lines for those that end.

In a log a line a minute says how far what is running has come.
"""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from orthosparse.lab.sweep.pairs import Outcome, Task


class Display:
    """One display for all tasks of a sweep, whichever engine runs them.

    Args:
        console: a `rich.console.Console`; None is stderr.
        quiet: show nothing.
    """

    def __init__(self, console: Any = None, *, quiet: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.console = console or Console(stderr=True, quiet=quiet)
        counted = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        self._all = Progress(TextColumn("pairs"), *counted)
        self._each = Progress(TextColumn("  {task.description}"), BarColumn(20), TextColumn("{task.fields[words]}"))
        self._sweep = self._all.add_task("", total=0)
        self._bars: dict[Task, Any] = {}
        self._live: Any = None
        self._errors: set[str | None] = set()
        self._minutes = Throttle(self._print)

    def __enter__(self) -> "Display":
        from rich.console import Group
        from rich.live import Live

        if self.console.is_terminal:
            self._live = Live(Group(self._all, self._each), console=self.console, transient=True, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, total: int, done: int) -> None:
        """Show how many pairs there are, and how many have a row."""
        self._all.update(self._sweep, total=total, completed=done)

    def start(self, task: Task) -> None:
        """Show that a task begins."""
        self._bars[task] = self._each.add_task(str(task), total=1.0, words="")

    def report(self, task: Task, fraction: float, words: str) -> None:
        """Show how far a task is."""
        if task in self._bars:
            self._each.update(self._bars[task], completed=fraction, words=words)
            if self._live is None:
                self._minutes(str(task), fraction, words)

    def end(self, task: Task, outcomes: Sequence[Outcome]) -> None:
        """Show what came of the pairs of a task; the same error is written once."""
        if (bar := self._bars.pop(task, None)) is not None:
            self._each.remove_task(bar)
        for outcome in outcomes:
            if outcome.row is not None:
                self._all.advance(self._sweep)
                self._print(f"{outcome.pair}: {outcome.row['wall_s']:.1f} s")
            elif outcome.error not in self._errors:
                self._errors.add(outcome.error)
                self._print(f"{outcome.pair}: {outcome.error}")

    def wait(self, done: int, others: int) -> None:
        """Show the rows of other runners, and how many pairs they are working on."""
        words = f"waiting for {others} of another runner" if others else ""
        self._all.update(self._sweep, completed=done, description=words)

    def _print(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


MINUTE = 60.0


class Throttle:
    """Writes a progress line with `write`, at most one a minute, the first after a minute.

    Example:
        >>> throttle = Throttle(print, seconds=0)
        >>> throttle("one network", 0.25, "epoch 5 of 20")
        one network: 25 %, epoch 5 of 20
    """

    def __init__(self, write: Callable[[str], object], *, seconds: float = MINUTE) -> None:
        self._write, self._seconds, self._last = write, seconds, monotonic()

    def __call__(self, name: str, fraction: float, words: str) -> None:
        """Write how far something is, if a minute has passed."""
        if monotonic() - self._last >= self._seconds:
            self._last = monotonic()
            self._write(", ".join(filter(None, [f"{name}: {fraction:.0%}".replace("%", " %"), words])))
