"""What every test needs: one thread, Ctrl-C as usual, and torchvision importable beside a CPU torch."""

import importlib.util
import os
import signal
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis
import pytest
import torch


def needs_operators():
    """Whether torchvision was built for GPUs and torch was not: it then misses operators that it never loads."""
    found = importlib.util.find_spec("torchvision")
    about = Path(found.origin).with_name("version.py").read_text() if found else ""
    return torch.version.cuda is None and "+cu" in about


# torchvision's wheel registers meta kernels for operators that a CPU torch does not have: declare them first.
if needs_operators():
    _TORCHVISION = torch.library.Library("torchvision", "DEF")
    _TORCHVISION.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _TORCHVISION.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

# Where tests are started in the background, the shell has them ignore Ctrl-C, and all they start would do so too.
signal.signal(signal.SIGINT, signal.default_int_handler)

torch.set_num_threads(1)
# Shared machines stall: a deadline would test the machine. derandomize: a red run is red again.
hypothesis.settings.register_profile("orthosparse", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("orthosparse")


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)
