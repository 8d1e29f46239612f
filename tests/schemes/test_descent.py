import threading

import pytest
import torch

from orthosparse.hardware import on_threads
from orthosparse.schemes import _descent

OPTIONS = {"target": 1.0, "iterations": 120, "rate": 0.1, "tolerance": 1e-6}


def matrices(shapes, generator, dtype=torch.float32):
    values = [torch.randn(shape, generator=generator).to(dtype) / shape[1] ** 0.5 for shape in shapes]
    masks = [torch.rand(shape, generator=generator) < 0.4 for shape in shapes]
    return [value * mask for value, mask in zip(values, masks, strict=True)], masks


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bits_depend_neither_on_the_company_nor_on_the_threads(dtype, generator):
    shapes = [(16, 40), (40, 16), (16, 40), (7, 7), (200, 300), (200, 300), (200, 300), (1, 5)]
    starts, masks = matrices(shapes, generator, dtype)
    options = OPTIONS | {"iterations": 30}
    ends = {}
    for number in (1, 2):
        with on_threads(number):
            ends[number] = _descent.descend(starts, masks, **options)
            assert torch.get_num_threads() == number
    for index, (start, mask) in enumerate(zip(starts, masks, strict=True)):
        alone = _descent.descend([start], [mask], **options)[0]
        assert ends[1][index].shape == start.shape
        assert ends[1][index].dtype == dtype
        assert torch.equal(ends[1][index], ends[2][index])
        assert torch.equal(ends[1][index], alone)


def test_matrices_that_stop_early_do_not_disturb_the_others(generator):
    starts, masks = matrices([(12, 12)] * 3, generator, torch.float64)
    starts[1], masks[1] = torch.zeros(12, 12, dtype=torch.float64), torch.zeros(12, 12, dtype=torch.bool)
    options = OPTIONS | {"iterations": 600}
    together = _descent.descend(starts, masks, **options)
    for index in (0, 2):
        assert torch.equal(together[index], _descent.descend([starts[index]], [masks[index]], **options)[0])
    assert int(together[1].count_nonzero()) == 0


@pytest.mark.parametrize(("tolerance", "steps"), [(1e-6, 250), (0.0, 1000)])
def test_a_matrix_that_cannot_move_stops_after_a_window_unless_the_tolerance_is_zero(tolerance, steps, monkeypatch):
    taken, product = [], torch.bmm
    monkeypatch.setattr(torch, "bmm", lambda *given, **options: taken.append(1) or product(*given, **options))
    still, mask = torch.zeros(4, 4), torch.zeros(4, 4, dtype=torch.bool)
    _descent.descend([still], [mask], **OPTIONS | {"iterations": 1000, "tolerance": tolerance})
    # The first window has nothing to be compared with, and the last state is looked at before a step from it.
    assert len(taken) == (2 * steps if tolerance else steps + 1)


def test_starts_are_not_written_to(generator):
    starts, masks = matrices([(6, 9)], generator)
    before = starts[0].clone()
    assert not torch.equal(_descent.descend(starts, masks, **OPTIONS)[0], before)
    assert torch.equal(starts[0], before)


def test_denormal_numbers_are_as_before_for_the_caller(generator):
    def denormal():
        return float(torch.tensor([1e-38]) / torch.tensor([10.0]))

    before = denormal()
    assert before > 0
    _descent.descend(*matrices([(6, 9)], generator), **OPTIONS)
    assert denormal() == before


def test_weights_that_sink_do_not_slow_it_down():
    # A product far below the normal numbers is flushed where the work is done.
    seen = []
    _descent._in_threads(
        lambda job: seen.append(float(torch.tensor([1e-38]) / torch.tensor([10.0]))), iter([[0]]), threading.Event()
    )
    assert seen == [0.0]


def test_an_error_in_one_job_stops_the_others_and_comes_out():
    stopped = threading.Event()

    def work(job):
        raise MemoryError(job)

    with pytest.raises(MemoryError):
        _descent._in_threads(work, iter([[0], [1]]), stopped)
    assert stopped.is_set()
    state = torch.eye(3).unsqueeze(0) * 2
    reached = []
    _descent._descend(state, torch.ones_like(state), stopped, reached.append, **(OPTIONS | {"iterations": 10**9}))
    assert reached == [0]  # returned at once


def test_no_matrices_are_no_work():
    assert _descent.descend([], [], **OPTIONS) == []
