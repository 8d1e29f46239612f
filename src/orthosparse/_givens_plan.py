"""The Givens sampler's supports in plain Python: which columns are rotated, and which rows each column then holds."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any, NamedTuple

from orthosparse import _givens_stream as stream
from orthosparse._givens_task import ROTATIONS, STOPS, Task

Rotations = list[tuple[int, int, float, float]]

PATIENCE = 8  # the exact rule gives up after this many idle attempts a column


class Sets(NamedTuple):
    """How a set of rows is written: any type whose ``|`` is the union."""

    empty: Any
    single: Callable[[int], Any]
    size: Callable[[Any], int]
    holds: Callable[[Any, int], bool]


BITS = Sets(0, lambda row: 1 << row, int.bit_count, lambda rows, row: bool(rows >> row & 1))
LISTS = Sets(frozenset(), lambda row: frozenset((row,)), len, lambda rows, row: row in rows)


class Step(NamedTuple):
    """A rotation of columns i < j that touched a non-zero, and the non-zeros it gained."""

    attempt: int
    i: int
    j: int
    gain: int


@dataclass(frozen=True)
class Plan:
    """A matrix before its values: where its rows start, which columns are rotated, which rows each column holds."""

    start: list[int]
    signs: list[float]
    rotations: Rotations
    columns: list[Any]


def counts_after(task: Task, rotations: int, seed: int) -> list[int]:
    """Return the numbers of non-zeros after 0, 1, ..., `rotations` rotations of one draw."""
    start, _ = _start(task, seed, 0)
    key = stream.stream_key(seed, 0, stream.ROTATIONS)
    gains = [0] * (rotations + 1)
    for step in _grow(_columns(task, start, BITS), task, rotations, key, BITS):
        gains[step.attempt + 1] = step.gain
    return list(accumulate(gains, initial=task.height))[1:]


def scattered_start(task: Task, seed: int) -> tuple[list[int], list[int], list[float]]:
    """Return rows, columns and signs of the start's entries, in random order."""
    columns, signs = _start(task, seed, 0)
    order = _shuffled(task.height, task.height, stream.words(stream.stream_key(seed, 0, stream.EXTRA), task.height))
    return order, [columns[row] for row in order], [signs[row] for row in order]


def plan(task: Task, count: int, seed: int, member: int, sets: Sets) -> Plan:
    """Draw rotations until the stopping rule is met, then the zero-valued entries that the count still lacks."""
    start, signs = _start(task, seed, member)
    columns = _columns(task, start, sets)
    key = stream.stream_key(seed, member, stream.ROTATIONS)
    steps = _grow(columns, task, count, key, sets)
    cosines, sines = stream.turns(key, [step.attempt for step in steps])
    if not math.isnan(task.cosine):
        cosines, sines = [task.cosine] * len(steps), [task.sine] * len(steps)
    if task.stop == STOPS["exact"]:
        _add_entries(columns, task.height, count, stream.stream_key(seed, member, stream.EXTRA), sets)
    rotations = [(step.i, step.j, c, s) for step, c, s in zip(steps, cosines, sines, strict=True)]
    return Plan(start, signs, _cone(rotations, *task.work_cols, task.width), columns)


def _start(task: Task, seed: int, member: int) -> tuple[list[int], list[float]]:
    """Return the column and the sign of each row's only entry before the first rotation."""
    if not task.permuted:
        return list(range(task.height)), [1.0] * task.height
    drawn = stream.words(stream.stream_key(seed, member, stream.START), task.height)
    return _shuffled(task.width, task.height, drawn), [-1.0 if word & 1 else 1.0 for word in drawn]


def _shuffled(size: int, how_many: int, drawn: list[int]) -> list[int]:
    """Return `how_many` distinct numbers below `size`, in random order (Fisher and Yates)."""
    numbers = list(range(size))
    for here, word in zip(range(how_many), drawn, strict=True):
        other = here + ((word >> 32) * (size - here) >> 32)
        numbers[here], numbers[other] = numbers[other], numbers[here]
    return numbers[:how_many]


def _columns(task: Task, start: list[int], sets: Sets) -> list[Any]:
    columns = [sets.empty] * task.width
    for row, column in enumerate(start):
        columns[column] = sets.single(row)
    return columns


def _grow(columns: list[Any], task: Task, count: int, key: int, sets: Sets) -> list[Step]:
    """Rotate the supports in place until the stopping rule is met; return the rotations that touched a non-zero.

    A rotation gives both its columns the union of their rows, so it gains |S_i xor S_j| non-zeros.
    """
    size_of, width, exact = sets.size, task.width, task.stop == STOPS["exact"]
    sizes = [size_of(column) for column in columns]
    total, goal, idle, patience = task.height, count, 0, PATIENCE * width + 64
    if task.stop == ROTATIONS:
        goal = task.height * width + 1  # out of reach
    steps: list[Step] = []
    before = (0, 0)
    for attempt, i, j in _attempts(key, width, count if task.stop == ROTATIONS else None):
        if total >= goal or idle >= patience:
            break
        room = goal - total
        if exact and abs(sizes[i] - sizes[j]) > room:
            idle += 1
            continue
        union = columns[i] | columns[j]
        size = size_of(union)
        gain = 2 * size - sizes[i] - sizes[j]
        if exact and gain > room:
            idle += 1
        elif size:
            before = columns[i], columns[j]
            columns[i] = columns[j] = union
            sizes[i] = sizes[j] = size
            total += gain
            # Only the exact rule can come to states from which nothing fits: it alone runs out of patience.
            idle = 0 if gain or not exact else idle + 1
            steps.append(Step(attempt, i, j, gain))
    if task.stop == STOPS["closest"] and steps and total - count > count - (total - steps[-1].gain):
        last = steps.pop()
        columns[last.i], columns[last.j] = before
    return steps


def _attempts(key: int, width: int, most: int | None) -> Iterator[tuple[int, int, int]]:
    """Yield attempt numbers and pairs of columns, `most` of them or without end; none where there is one column."""
    first, chunk = 0, 256
    while width > 1 and (most is None or first < most):
        chunk = chunk if most is None else min(chunk, most - first)
        yield from zip(range(first, first + chunk), *stream.pairs(key, first, chunk, width), strict=True)
        first, chunk = first + chunk, min(2 * chunk, 8192)


def _add_entries(columns: list[Any], height: int, count: int, key: int, sets: Sets) -> None:
    """Make as many absent entries active as `count` lacks, each uniform among those that are still absent."""
    absent = [height - sets.size(column) for column in columns]
    for word in stream.words(key, count - (height * len(columns) - sum(absent))):
        rank = word % sum(absent)
        column = 0
        while rank >= absent[column]:
            rank -= absent[column]
            column += 1
        rows = (row for row in range(height) if not sets.holds(columns[column], row))
        columns[column] |= sets.single(next(islice(rows, rank, None)))
        absent[column] -= 1


def _cone(rotations: Rotations, first: int, last: int, width: int) -> Rotations:
    """Return the rotations that the columns first..last depend on."""
    if (first, last) == (0, width):
        return rotations
    needed = [first <= column < last for column in range(width)]
    kept = []
    for rotation in reversed(rotations):
        i, j, *_ = rotation
        if needed[i] or needed[j]:
            needed[i] = needed[j] = True
            kept.append(rotation)
    return kept[::-1]
