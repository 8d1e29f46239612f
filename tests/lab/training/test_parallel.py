"""Several processes train as one would, however they were started."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def _load(name):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def _run(*command):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parallel")
    port = f"--master-port={_free_port()}"
    _run("-m", "torch.distributed.run", "--nproc-per-node=2", port, str(HERE / "parallel_runs.py"), str(folder))
    return json.loads((folder / "curves.json").read_text())


@pytest.fixture(scope="module")
def alone():
    runs = _load("parallel_runs")
    return {dynamic: runs.curve("auto", dynamic) for dynamic in (None, "rigl", "set")}


@pytest.mark.parametrize(
    ("way", "dynamic"),
    [
        ("ddp", None),
        ("ddp rigl", "rigl"),
        ("ddp resumed", "set"),
        ("fsdp", None),
        ("fsdp resumed", "rigl"),
        ("fabric run", None),
    ],
)
def test_two_processes_have_the_loss_curve_of_one_with_the_whole_batch(two_processes, alone, way, dynamic):
    both, one = two_processes[way], alone[dynamic]
    assert (both["world"], one["world"]) == (2, 1)
    # Resuming, the epoch's curve begins anew with the checkpoint's part of it: the last 42 are the run's.
    assert both["losses"][-42:] == pytest.approx(one["losses"], abs=1e-5)
    assert both["test_loss"] == pytest.approx(one["test_loss"], abs=1e-5)
