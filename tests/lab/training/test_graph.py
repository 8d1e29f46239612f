import pytest
import torch

from orthosparse.lab.training.graph import Graphed

pytestmark = pytest.mark.gpu


def test_every_call_works_once_whether_eager_captured_or_replayed():
    total, given = torch.zeros(1, device="cuda"), torch.zeros(1, device="cuda")
    calls = []

    def work():
        calls.append(1)
        total.add_(given)

    graphed = Graphed(work, warmup=3)
    for number in range(10):
        given.fill_(number)
        graphed()
    assert total.item() == sum(range(10))
    assert len(calls) == 4  # three eager calls and the capture
