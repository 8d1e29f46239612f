"""Starts that are made without training."""

from functools import partial

import pytest
from sweep_toys import row_of

from orthosparse.lab.experiments.expected_density import ExpectedDensity
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.sweep.display import Display
from orthosparse.lab.sweep.engines.local import local
from orthosparse.lab.sweep.pairs import Pair, perform
from orthosparse.lab.sweep.preparing import prepare
from orthosparse.lab.sweep.runner import run
from orthosparse.lab.training import starts
from orthosparse.lab.training.assembly import started
from orthosparse.lab.training.stacked import assembly


def pair(seed=1, **changes):
    return Pair(Training("mlp", "digits", model_options={"depth": 3}, epochs=1, **changes), seed)


def prepared(pairs, store, together=2):
    return prepare(pairs, store, together, root=store.path.parent, device="cpu", display=Display(quiet=True))


def test_stacks_have_their_starts_and_others_none(store):
    alone = Pair(ExpectedDensity(8, 4), 1)
    found = prepared([pair(1), pair(2), pair(3), alone], store)
    assert (found.starts, found.alone, found.problems) == (3, [alone], [])
    assert [len(list((folder / "starts").iterdir())) for folder in found.folders] == [2, 1]
    assert not store.names()


def test_pairs_that_have_a_row_are_left_out(store):
    store.append(row_of(pair(1)))
    found = prepared([pair(1), pair(2)], store)
    assert found.starts == 1


def test_a_start_that_cannot_be_made_is_named_and_the_others_are_there(store):
    found = prepared([pair(density=0.5), pair(density=1e-5)], store)
    assert found.starts == 1
    (problem,) = found.problems
    assert "density=1e-05" in problem
    assert "ValueError: density: expected at least" in problem


def test_a_start_that_could_not_be_made_is_tried_again_by_the_next_call(store, monkeypatch):
    pairs = [pair(density=0.5), pair(density=0.25)]

    def out_of_memory(run, *rest, **options):
        if run.density == 0.25:
            raise MemoryError("not now")
        return started(run, *rest, **options)

    monkeypatch.setattr(assembly, "processors", lambda: 1)  # the starts are made here
    with monkeypatch.context() as short:
        short.setattr(starts, "started", out_of_memory)
        assert len(prepared(pairs, store).problems) == 1
    found = prepared(pairs, store)
    assert (found.starts, found.problems) == (2, [])


def test_a_stack_without_any_start_tries_them_again_in_the_next_sweep(store, monkeypatch):
    pairs = [pair(density=0.5), pair(density=0.25)]
    work = partial(perform, runs=store.runs, device="cpu")
    sweep = partial(run, pairs, store, local, perform=work, together=2)
    with monkeypatch.context() as short:
        short.setattr(starts, "started", lambda *run, **options: 1 / 0)
        assert [outcome.error for outcome in sweep().failed] == [
            "RuntimeError: ZeroDivisionError: division by zero"
        ] * 2
    assert (len((again := sweep()).done), again.failed) == (2, [])


def test_a_stack_that_another_process_has_is_left_alone(store):
    from orthosparse.lab.training.checkpoint import locked

    (folder,) = prepared([pair()], store).folders
    with locked(folder), pytest.raises(ValueError, match="is in use"):
        prepared([pair()], store)
