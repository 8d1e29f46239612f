import pytest
import torch

from orthosparse.hardware import on_threads
from orthosparse.lab.bench import sampler
from orthosparse.lab.bench.sampler import Row, line, run


def test_exactness_holds_on_a_few_questions():
    rows = list(run(["exactness"], quick=True))
    assert {row.check for row in rows} >= {"wrong counts or masks", "|| A A^T - I ||, float64"}
    assert all(row.value <= row.limit for row in rows)


def test_observation_1_holds_on_a_few_draws():
    (row,) = run(["observation"], quick=True)
    assert row.value <= row.limit


def test_exponent_is_the_power_of_the_size():
    assert sampler._slope([10, 20, 40], [3.0, 6.0, 12.0]) == pytest.approx(1.0)
    assert sampler._slope([10, 20, 40], [1.0, 4.0, 16.0]) == pytest.approx(2.0)


def test_a_run_is_single_threaded_and_gives_the_threads_back():
    with on_threads(2):
        rows = run(["observation"], quick=True)
        next(rows)
        assert torch.get_num_threads() == 1
        rows.close()
        assert torch.get_num_threads() == 2


def test_lines_say_what_is_over_its_limit():
    assert line(Row("kernel / plain", "256 x 256", 0.4, 0.35)).endswith("OVER")
    assert line(Row("kernel / plain", "256 x 256", 0.3, 0.35)).endswith("ok")
    assert "<=" not in line(Row("compressed, seconds", "10 x 10", 0.3, None))
