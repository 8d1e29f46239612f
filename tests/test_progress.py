import pytest
import torch
from torch import nn

from orthosparse import isometry
from orthosparse.distributions import DISTRIBUTIONS
from orthosparse.progress import counted, reporter
from orthosparse.schemes import SCHEMES


def model_of(width=12):
    return nn.Sequential(nn.Linear(width, 20), nn.ReLU(), nn.Linear(20, 5))


def synflow(progress):
    DISTRIBUTIONS["synflow"](model_of(), 0.2, input_shape=[12], rounds=7, progress=progress)


def snip_iterative(progress):
    g = torch.Generator().manual_seed(0)
    batch = torch.randn(8, 12, generator=g), torch.randint(5, (8,), generator=g)
    DISTRIBUTIONS["snip_iterative"](model_of(), 0.2, batch=batch, rounds=5, progress=progress)


def ai(progress, tolerance=0.0, iterations=130):
    masks = DISTRIBUTIONS["uniform"](model_of(), 0.4, generator=torch.Generator().manual_seed(0))
    SCHEMES["ai"](model_of(), masks, iterations=iterations, tolerance=tolerance, progress=progress)


def settled_ai(progress):
    ai(progress, tolerance=0.9, iterations=100_000)


def exact(progress):
    isometry.singular_values(model_of(), torch.ones(2, 12), chunk=2, progress=progress)


def matrix_free(progress):
    generator = torch.Generator().manual_seed(0)
    isometry.singular_values(
        model_of(), torch.ones(2, 12), method="matrix_free", generator=generator, progress=progress
    )


WORK = {"synflow": synflow, "snip_iterative": snip_iterative, "ai": ai, "singular_values": exact}
every_work = pytest.mark.parametrize("work", [*WORK.values(), settled_ai, matrix_free])


@every_work
def test_done_counts_up_to_a_total_that_stays(work):
    calls = []
    work(lambda *call: calls.append(call))
    names, done, totals = zip(*calls, strict=True)
    assert set(names) <= set(WORK)
    assert len(set(names)) == len(set(totals)) == 1
    assert sorted(set(done)) == [*done]
    assert 0 < done[0] <= done[-1] == totals[-1]


@every_work
def test_true_writes_one_line_on_stderr_and_false_writes_nothing(work, capsys):
    work(False)
    assert capsys.readouterr() == ("", "")
    work(True)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("\r")
    assert err.rstrip().endswith("(100%)")
    assert err.count("\n") == 1


@every_work
def test_what_is_no_function_is_named(work):
    with pytest.raises(TypeError, match=r"progress: expected True, False or a function .*; got 'yes' \(str\)"):
        work("yes")


def test_rounds_are_counted_one_by_one():
    calls = []
    synflow(lambda *call: calls.append(call))
    assert calls == [("synflow", done, 7) for done in range(1, 8)]


def test_iterations_of_all_matrices_are_counted_together():
    calls = []
    ai(lambda *call: calls.append(call))
    assert {call[2] for call in calls} == {2 * 130}
    assert len(calls) == 2 * 3  # after 50, 100 and 130 iterations, of two matrices


def test_what_a_callback_raises_is_raised():
    def failing(what, done, total):
        raise KeyError(what)

    with pytest.raises(KeyError, match="ai"):
        ai(failing)


def test_items_are_reported_once_their_work_is_done():
    calls = []
    for item in counted("ab", "letters", lambda *call: calls.append(call)):
        assert len(calls) == "ab".index(item)
    assert calls == [("letters", 1, 2), ("letters", 2, 2)]


def test_the_silent_reporter_is_one():
    assert reporter(False)("anything", 1, 2) is None
