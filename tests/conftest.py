"""What every test needs: one thread, Ctrl-C as usual, and a reason where a test cannot run on this machine."""

import contextlib
import gc
import importlib
import os
import resource
import signal
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes that tests start, too

import hypothesis
import pytest
import torch

from orthosparse.lab.optional import torchvision_remedy

# Where tests are started in the background, the shell has them ignore Ctrl-C, and all they start would do so too.
signal.signal(signal.SIGINT, signal.default_int_handler)

torch.set_num_threads(1)
# Shared machines stall: a deadline would test the machine. derandomize: a red run is red again.
hypothesis.settings.register_profile("orthosparse", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("orthosparse")


def pytest_addoption(parser):
    about = "Declare torchvision's operators where it was built for another torch, as users cannot."
    parser.addoption("--declare-torchvision", action="store_true", help=about)
    about = "Number of random networks that each law of tests/contracts/test_random_networks.py is checked on."
    parser.addoption("--networks", type=int, default=60, help=about)


def pytest_configure(config):
    if config.getoption("--declare-torchvision") and misfit():
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]  # what the failed import has left
        config.torchvision = library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keep the garbage collector from what is imported and collected: it stays, and to pass over it takes long."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items):
    reasons = {"gpu": "" if torch.cuda.is_available() else "no CUDA device"}
    if any("torchvision" in item.keywords for item in items):
        reasons["torchvision"] = misfit()
    for item in items:
        for marker, reason in reasons.items():
            if reason and marker in item.keywords:
                item.add_marker(pytest.mark.skip(reason=reason))


def misfit():
    """Why an installed torchvision cannot be imported; empty where it can, or where there is none."""
    try:
        importlib.import_module("torchvision")
    except ImportError:
        return ""
    except RuntimeError:
        return torchvision_remedy(torch.__version__)
    return ""


@pytest.fixture
def small_disk():
    """A context in which no file grows past a number of bytes: writing fails as on a full disk."""

    @contextlib.contextmanager
    def limited(size):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limited


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)
