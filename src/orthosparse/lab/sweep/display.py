"""Shows a sweep: one bar for all pairs and one for each that is running; in a log, lines for those that end.

In a log a line a minute says how far what is running has come.
"""

from typing import Any

from orthosparse.lab.paced import Paced
from orthosparse.lab.sweep.engines import Outcome
from orthosparse.lab.sweep.pairs import Pair


class Silent:
    """Shows nothing; what a display can be told."""

    def begin(self, total: int, done: int) -> None:
        """Say how many pairs there are, and how many have a row."""

    def start(self, pair: Pair) -> None:
        """Say that a pair begins."""

    def report(self, pair: Pair, fraction: float, words: str) -> None:
        """Say how far a pair is."""

    def end(self, outcome: Outcome) -> None:
        """Say what came of a pair."""

    def wait(self, done: int, others: int) -> None:
        """Say how many pairs have a row by now, and how many other runners are working on."""


class Display(Silent):
    """One display for all pairs of a sweep, whichever engine runs them.

    Args:
        console: a `rich.console.Console`; None is stderr.
    """

    def __init__(self, console: Any = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.console = console or Console(stderr=True)
        self._all = Progress(
            TextColumn("pairs"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
        )
        self._each = Progress(TextColumn("  {task.description}"), BarColumn(20), TextColumn("{task.fields[words]}"))
        self._tasks: dict[tuple[str, int], Any] = {}
        self._sweep: Any = None
        self._live: Any = None
        self._told: set[str] = set()
        self._paced = Paced(self._line)

    def __enter__(self) -> "Display":
        from rich.console import Group
        from rich.live import Live

        self._sweep = self._all.add_task("", total=0)
        if self.console.is_terminal:
            self._live = Live(Group(self._all, self._each), console=self.console, transient=True, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, total: int, done: int) -> None:
        """Say how many pairs there are, and how many have a row."""
        self._all.update(self._sweep, total=total, completed=done)

    def start(self, pair: Pair) -> None:
        """Show that a pair begins."""
        self._tasks[pair.name] = self._each.add_task(str(pair), total=1.0, words="")

    def report(self, pair: Pair, fraction: float, words: str) -> None:
        """Show how far a pair is."""
        if pair.name in self._tasks:
            self._each.update(self._tasks[pair.name], completed=fraction, words=words)
            if self._live is None:
                self._paced(str(pair), fraction, words)

    def end(self, outcome: Outcome) -> None:
        """Show what came of a pair; the same error is written once."""
        if (task := self._tasks.pop(outcome.pair.name, None)) is not None:
            self._each.remove_task(task)
        if outcome.row is not None:
            self._all.advance(self._sweep)
            self._line(f"{outcome.pair}: {outcome.row['wall_s']:.1f} s")
        elif outcome.error not in self._told:
            self._told.add(str(outcome.error))
            self._line(f"{outcome.pair}: {outcome.error}")

    def wait(self, done: int, others: int) -> None:
        """Show the rows of other runners, and that they are working on the rest."""
        words = f"waiting for {others} of another runner" if others else ""
        self._all.update(self._sweep, completed=done, description=words)

    def _line(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)
