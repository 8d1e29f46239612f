import pytest
import torch

from orthosparse.lab.threads import one_thread, threads_for


def test_one_thread_inside_and_as_many_as_before_afterwards():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(RuntimeError, match="boom"), one_thread():
            assert torch.get_num_threads() == 1
            raise RuntimeError("boom")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("weights", "batch", "threads"), [(129_400, 128, 1), (464_000, 128, 2), (16_000_000, 128, 2)])
def test_small_steps_take_one_thread_and_large_ones_all(weights, batch, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with threads_for(weights, batch):
            assert torch.get_num_threads() == threads
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
