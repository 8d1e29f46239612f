import pytest

from orthosparse.lab.inspection.inputs import gaussian
from orthosparse.lab.inspection.measures import inspect_model
from orthosparse.lab.inspection.starts import Plan
from orthosparse.lab.inspection.targets import resolve


@pytest.fixture(scope="session")
def network():
    """A small tanh perceptron, and the inputs it is shown."""
    import torch

    generator = torch.Generator().manual_seed(0)
    target = resolve("mlp", in_shape=(1, 6, 6), classes=5, activation="tanh", generator=generator)
    return target, gaussian(target.in_shape, 5, 6, generator=generator)


@pytest.fixture(scope="session")
def found(network):
    target, inputs = network
    return inspect_model(target.model, Plan(density=0.05, gain=1.02), inputs, seed=1)
