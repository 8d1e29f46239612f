import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from orthosparse.hardware import kernel_threads, on_float64_device, on_threads, to_float64, workers

LARGE = 2**20


def shared(work, items, sizes):
    with workers(sizes) as parallel_map:
        return list(parallel_map(work, items))


@pytest.fixture
def threads(request):
    with on_threads(request.param):
        yield request.param


@pytest.mark.parametrize("threads", [1, 2, 5], indirect=True)
@pytest.mark.parametrize("items", [0, 1, 3, 9])
def test_results_come_in_the_order_of_the_items(threads, items):
    assert shared(lambda item: item * item, range(items), [LARGE] * items) == [item * item for item in range(items)]


@pytest.mark.parametrize("threads", [2], indirect=True)
def test_a_thread_that_is_held_up_leaves_the_other_items_to_others(threads):
    rest, done = threading.Event(), []

    def work(item):
        if item == 0:
            assert rest.wait(60)  # until all others are done
        done.append(item)
        if len(done) == 7:
            rest.set()
        return item

    assert shared(work, range(8), [LARGE] * 8) == [*range(8)]
    assert done[-1] == 0


@pytest.mark.parametrize("threads", [2], indirect=True)
def test_an_error_comes_back_and_what_has_not_begun_does_not(threads):
    begun = []

    def work(item):
        begun.append(item)
        raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match="item 0"):
        shared(work, range(1000), [LARGE] * 1000)
    assert len(begun) < 1000


@pytest.mark.parametrize("threads", [3], indirect=True)
def test_kernels_have_all_threads_or_share_layers_and_never_both(threads):
    def found(sizes):
        return shared(lambda size: kernel_threads(LARGE), sizes, sizes)

    assert kernel_threads(LARGE) == 3
    assert kernel_threads(LARGE - 1) == 1
    assert found([LARGE] * 3) == [1] * 3
    assert found([LARGE, 1, 1]) == [3] * 3  # one item has most of the weights
    assert found([10] * 3) == [3] * 3  # not worth a thread
    assert kernel_threads(LARGE) == 3


@pytest.mark.parametrize("threads", [2], indirect=True)
def test_the_number_of_threads_of_torch_survives_work_that_sets_it(threads):
    shared(lambda item: torch.set_num_threads(1), range(4), [LARGE] * 4)
    assert torch.get_num_threads() == 2
    later = []
    other = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    other.start()
    other.join()
    assert later == [2]


def test_threads_are_put_back_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(KeyError), on_threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise KeyError
    with on_threads(None):
        assert torch.get_num_threads() == before
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_tensor_stays_where_float64_is(device):
    tensor = torch.ones(3, device=device)
    assert on_float64_device(tensor) is tensor
    assert (to_float64(tensor).device, to_float64(tensor).dtype) == (tensor.device, torch.float64)


def test_the_library_works_on_a_device_without_float64():
    path = Path(__file__).parent / "without_float64.py"
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command = [sys.executable, "-m", "pytest", *options, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "25 passed" in done.stdout
