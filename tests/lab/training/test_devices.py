import pytest
import torch

from orthosparse.hardware import on_threads
from orthosparse.lab.training.devices import arithmetic, device_of, is_first_rank, launch, threads_for


def test_one_process_on_the_cpu_needs_no_group():
    fabric = launch(device="cpu")
    assert (fabric.device.type, fabric.world_size, fabric.is_global_zero) == ("cpu", 1, True)
    assert is_first_rank()
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"device": "gpu"}, "device: expected auto, cpu, cuda or cuda:INDEX; got 'gpu'"),
        ({"device": "cpu:1"}, "device: expected"),
        ({"device": "cuda:x"}, "device: expected"),
        ({"devices": 0}, "devices: expected a positive integer; got 0"),
        ({"strategy": "dp"}, "strategy: expected one of auto, ddp, fsdp; got 'dp'"),
    ],
)
def test_a_bad_place_is_named(given, expected):
    with pytest.raises(ValueError, match=expected):
        launch(**given)


@pytest.mark.gpu
def test_a_gpu_that_is_not_there_is_said():
    with pytest.raises(ValueError, match="GPUs here"):
        launch(device=f"cuda:{torch.cuda.device_count()}")


def test_several_processes_on_one_device_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    with pytest.raises(ValueError, match="devices: expected 1 with cuda:1, which is one device; got 2"):
        launch(device="cuda:1", devices=2)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp64"])
def test_arithmetic_is_set_inside_and_restored_outside(precision):
    def settings():
        cudnn = torch.backends.cudnn
        return (
            torch.backends.cuda.matmul.fp32_precision,
            cudnn.conv.fp32_precision,
            cudnn.benchmark,
            cudnn.deterministic,
        )

    before = settings()
    with pytest.raises(KeyError), arithmetic(precision, deterministic=True):
        expected = "tf32" if precision in ("tf32", "bf16") else "ieee"
        assert settings() == (expected, expected, False, True)
        raise KeyError
    assert settings() == before


@pytest.mark.parametrize(("weights", "batch", "threads"), [(129_400, 128, 1), (464_000, 128, 2), (16_000_000, 128, 2)])
def test_small_steps_take_one_thread_and_large_ones_all(weights, batch, threads):
    with on_threads(2):
        with threads_for(weights, batch):
            assert torch.get_num_threads() == threads
        assert torch.get_num_threads() == 2


def test_a_device_that_is_none_is_refused():
    assert device_of("auto").type in ("cpu", "cuda")
    for wrong in ("tpu", "cpu:0", "cuda:x", "cuda:99"):
        with pytest.raises(ValueError, match="device: expected"):
            device_of(wrong)
