"""Runs that are killed at any moment, twenty times, and what is left of them."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from contracts.states import assert_same
from orthosparse.lab.training.checkpoint import load

STEPS = 42


@pytest.fixture(scope="module")
def run():
    server = Path(__file__).with_name("killable.py")
    with subprocess.Popen([sys.executable, str(server)], stdin=-1, stdout=-1, text=True) as process:

        def ask(out, kill=None):
            print(json.dumps({"out": str(out), "kill": kill}), file=process.stdin, flush=True)
            return json.loads(process.stdout.readline())

        yield ask
        process.stdin.close()


@pytest.fixture(scope="module")
def whole(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    assert run(folder)["code"] == 0
    return load(folder)["model"]


def _points():
    generator = torch.Generator().manual_seed(20)
    steps = torch.randint(1, STEPS, (8,), generator=generator).tolist()
    # Fifteen checkpoints of some 7 calls each, and their neighbours: 12 places among the first hundred.
    calls = torch.randint(1, 100, (12,), generator=generator).tolist()
    return [("step", step) for step in steps] + [("call", call) for call in calls]


@pytest.mark.parametrize("kill", _points(), ids=lambda kill: f"{kill[0]}{kill[1]}")
def test_a_killed_run_goes_on_from_its_last_checkpoint_to_the_same_weights(run, whole, tmp_path, kill):
    killed = run(tmp_path, kill)
    assert killed["code"] == -signal.SIGKILL
    resumed = run(tmp_path)
    assert resumed["code"] == 0
    assert resumed["start"] >= killed.get("saved", 0)
    assert killed["step"] - resumed["start"] <= 3 + (kill[0] == "call")
    final = load(tmp_path)["model"]
    assert_same(final, whole)
    assert not list(tmp_path.glob(".*.tmp"))
    assert len(list(tmp_path.glob("checkpoint-*"))) == 4


def test_a_run_killed_again_and_again_still_arrives(run, whole, tmp_path):
    for kill in (["call", 9], ["step", 7], ["call", 20], ["call", 11], ["step", 33], ["call", 5]):
        assert run(tmp_path, kill)["code"] == -signal.SIGKILL
    assert run(tmp_path)["code"] == 0
    final = load(tmp_path)["model"]
    assert_same(final, whole)
