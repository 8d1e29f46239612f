"""The Givens sampler's supports in plain Python: the rotated columns, and the active rows of each column."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain
from itertools import count as count_from
from typing import Any, NamedTuple

import numpy as np

from orthosparse.givens import stream
from orthosparse.givens.task import ROTATIONS, STOPS, Task

# Between two gains the exact rule allows as many attempts that overshoot as there are columns, plus a few, or eight
# times as many that gain nothing (the last entry of a full matrix takes half as many as there are columns).
_OVERSHOT = 8


class Sets(NamedTuple):
    """A representation of sets of rows: any type with ``|`` and ``^``."""

    empty: Any
    single: Callable[[int], Any]
    size: Callable[[Any], int]
    absent: Callable[[Any, int], Sequence[int]]


def _absent_bits(rows: int, height: int) -> list[int]:
    packed = np.frombuffer(rows.to_bytes(-(-height // 8), "little"), dtype=np.uint8)
    return np.flatnonzero(np.unpackbits(packed, count=height, bitorder="little") == 0).tolist()


BITS = Sets(0, lambda row: 1 << row, int.bit_count, _absent_bits)
LISTS = Sets(
    frozenset(), lambda row: frozenset((row,)), len, lambda rows, height: sorted(frozenset(range(height)) - rows)
)


class Steps(NamedTuple):
    """Rotations that involve a non-zero, in order: attempt, columns i < j, non-zeros gained."""

    attempt: list[int]
    i: list[int]
    j: list[int]
    gain: list[int]


class Rotations(NamedTuple):
    """Rotations of columns i < j, in order."""

    i: Sequence[int]
    j: Sequence[int]
    cosine: Sequence[float]
    sine: Sequence[float]


class Plan(NamedTuple):
    """A matrix without its values: the start of each row, the rotations, and the active rows of each column.

    `columns` includes `extra`, the (row, column) of active entries whose value is zero.
    """

    start: list[int]
    signs: list[float]
    rotations: Rotations
    columns: list[Any]
    extra: list[tuple[int, int]]


def counts_after(task: Task, rotations: int, seed: int) -> list[int]:
    """Return the numbers of non-zeros after 0, 1, ..., `rotations` rotations of one draw."""
    start, _ = start_of(task, seed, 0)
    steps = grow(columns_at(task, start, BITS), task, rotations, stream.stream_key(seed, 0, stream.ROTATIONS), BITS)
    gains = [0] * (rotations + 1)
    for attempt, gain in zip(steps.attempt, steps.gain, strict=True):
        gains[attempt + 1] = gain
    return list(accumulate(gains, initial=task.height))[1:]


def scattered_start(task: Task, seed: int) -> tuple[list[int], list[int], list[float]]:
    """Return rows, columns and signs of the start's entries, in random order."""
    columns, signs = start_of(task, seed, 0)
    order = _shuffled(task.height, task.height, stream.words(stream.stream_key(seed, 0, stream.EXTRA), task.height))
    return order, [columns[row] for row in order], [signs[row] for row in order]


def plan(task: Task, count: int, seed: int, member: int, sets: Sets) -> Plan:
    """Draw rotations until the stopping rule is met, then the zero-valued entries that are still missing."""
    start, signs = start_of(task, seed, member)
    columns = columns_at(task, start, sets)
    key = stream.stream_key(seed, member, stream.ROTATIONS)
    steps = grow(columns, task, count, key, sets)
    fixed = [task.cosine] * len(steps.i), [task.sine] * len(steps.i)
    cosines, sines = stream.turns(key, steps.attempt) if math.isnan(task.cosine) else fixed
    missing = count - task.height - sum(steps.gain) if task.stop == STOPS["exact"] else 0
    extra = add_entries(columns, task.height, missing, stream.stream_key(seed, member, stream.EXTRA), sets)
    rotations = _cone(Rotations(steps.i, steps.j, cosines, sines), *task.work_cols, task.width)
    return Plan(start, signs, rotations, columns, extra)


def start_of(task: Task, seed: int, member: int) -> tuple[list[int], list[float]]:
    """Return the column and the sign of each row's only entry before the first rotation."""
    if not task.permuted:
        return list(range(task.height)), [1.0] * task.height
    drawn = stream.words(stream.stream_key(seed, member, stream.START), task.height)
    return _shuffled(task.width, task.height, drawn), [-1.0 if word & 1 else 1.0 for word in drawn]


def _shuffled(size: int, how_many: int, drawn: list[int]) -> list[int]:
    """Return `how_many` distinct numbers below `size`, in random order (Fisher and Yates)."""
    numbers = list(range(size))
    for index, word in zip(range(how_many), drawn, strict=True):
        other = index + ((word >> 32) * (size - index) >> 32)
        numbers[index], numbers[other] = numbers[other], numbers[index]
    return numbers[:how_many]


def columns_at(task: Task, start: list[int], sets: Sets) -> list[Any]:
    """Return the active rows of each column before the first rotation."""
    columns = [sets.empty] * task.width
    for row, column in enumerate(start):
        columns[column] = sets.single(row)
    return columns


def grow(columns: list[Any], task: Task, count: int, key: int, sets: Sets) -> Steps:
    """Rotate the supports in place until the stopping rule is met.

    A rotation gives both its columns the union of their rows, so it gains |S_i xor S_j| non-zeros.
    """
    size_of, exact, steps = sets.size, task.stop == STOPS["exact"], Steps([], [], [], [])
    add_attempt, add_i, add_j, add_gain = (part.append for part in steps)
    sizes = [size_of(column) for column in columns]
    most, goal = (count, task.height * task.width + 1) if task.stop == ROTATIONS else (None, count)
    room = goal - sum(sizes)
    # No rotation gains more than the height, so none can overshoot while there is more room than that.
    near = task.height if exact else 1
    limit = min(room, task.height) if exact else task.height
    useful, patience = 0, _OVERSHOT * (task.width + 64)
    left = patience
    x = y = sets.empty
    for attempt, i, j in _attempts(key, task.width, most if room > 0 else 0):
        a, b = sizes[i], sizes[j]
        gain = a - b if a > b else b - a  # a lower bound: if that is too much already, skip the rest
        if gain <= limit:
            x, y = columns[i], columns[j]
            gain = size_of(x ^ y)
        if gain > limit:
            left -= _OVERSHOT
        elif gain or a:
            columns[i] = columns[j] = x | y
            sizes[i] = sizes[j] = (a + b + gain) // 2
            add_attempt(attempt)
            add_i(i)
            add_j(j)
            add_gain(gain)
            room -= gain
            if room < near:
                if room <= 0:
                    break
                if gain:
                    limit, left, useful = room, patience, len(steps.i)
                else:
                    left -= 1
        if left <= 0:
            return Steps(*(part[:useful] for part in steps))  # drop the rotations after the last gain
    if task.stop == STOPS["closest"] and steps.i and -room > room + steps.gain[-1]:
        columns[steps.i[-1]], columns[steps.j[-1]] = x, y
        return Steps(*(part[:-1] for part in steps))
    return steps


def _attempts(key: int, width: int, most: int | None) -> Iterator[tuple[int, int, int]]:
    """Return attempt numbers and pairs of columns, `most` of them or infinitely many; none if there is one column."""
    chunk = min(max(256, 2 * width), 8192)
    ends = count_from(chunk, chunk) if most is None else [*range(chunk, most, chunk), most]
    starts = count_from(0, chunk) if width > 1 else ()
    chunks = zip(starts, ends, strict=False)
    return chain.from_iterable(
        zip(range(first, last), *stream.pairs(key, first, last - first, width), strict=True) for first, last in chunks
    )


def add_entries(columns: list[Any], height: int, missing: int, key: int, sets: Sets) -> list[tuple[int, int]]:
    """Make `missing` absent entries active, each uniform among those that are still absent; return (row, column)."""
    if not missing:
        return []
    absent = np.array([height - sets.size(column) for column in columns])
    added = []
    for word in stream.words(key, missing):
        ends = np.cumsum(absent)
        rank = word % int(ends[-1])
        column = int(np.searchsorted(ends, rank, side="right"))
        row = sets.absent(columns[column], height)[rank - int(ends[column] - absent[column])]
        columns[column] |= sets.single(row)
        absent[column] -= 1
        added.append((row, column))
    return added


def _cone(rotations: Rotations, first: int, last: int, width: int) -> Rotations:
    """Return the rotations that the columns first..last depend on."""
    if (first, last) == (0, width):
        return rotations
    needed = [first <= column < last for column in range(width)]
    kept = []
    for step in range(len(rotations.i) - 1, -1, -1):
        one, other = rotations.i[step], rotations.j[step]
        if needed[one] or needed[other]:
            needed[one] = needed[other] = True
            kept.append(step)
    kept.reverse()
    i, j, cosine, sine = rotations
    return Rotations([i[k] for k in kept], [j[k] for k in kept], [cosine[k] for k in kept], [sine[k] for k in kept])
