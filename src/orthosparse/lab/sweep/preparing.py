"""Makes the starts of stacks without training them: on a CPU, for a machine whose GPU has better things to do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from orthosparse.lab.experiments.training import Training
from orthosparse.lab.sweep.display import Display
from orthosparse.lab.sweep.pairs import Pair, Task
from orthosparse.lab.sweep.store import Store
from orthosparse.lab.sweep.tasks import begin, ordered, stacked


@dataclass
class Prepared:
    """What was made.

    Attributes:
        starts: how many there are now.
        folders: of the stacks.
        alone: pairs that train in no stack, and keep no start.
        problems: why starts could not be made.
    """

    starts: int = 0
    folders: list[Path] = field(default_factory=list)
    alone: list[Pair] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def prepare(
    pairs: Sequence[Pair], store: Store, together: int, *, root: Path, device: str, display: Display
) -> Prepared:
    """Make the starts of all pairs that have no row and train in stacks of `together` networks at most.

    A sweep of the same pairs and stacks goes on from them, also one on another machine that has a copy of the folders.
    """
    names, found = store.names(), Prepared()
    for task in stacked(ordered(list(dict.fromkeys(pairs)), names), names, together, store.runs):
        if task.stacked:
            begin(task, store.runs)
            display.start(task)
            _prepare(task, store.runs / task.folder, root, device, found, partial(display.report, task))
            display.end(task, [])
        else:
            found.alone += task.missing
    return found


def _prepare(
    task: Task, folder: Path, root: Path, device: str, found: Prepared, report: Callable[[float, str], None]
) -> None:
    from orthosparse.lab.training.stacked.assembly import prepare_stack

    runs = [(pair.experiment, pair.seed) for pair in task.pairs if isinstance(pair.experiment, Training)]
    problems = prepare_stack(runs, folder, root=root, device=device, progress=report)
    found.folders.append(folder)
    found.starts += problems.count(None)
    found.problems += [f"{pair}: {why}" for pair, why in zip(task.pairs, problems, strict=True) if why is not None]
