import dataclasses

import pytest
import torch

from orthosparse.lab.training import Recipe, Run, launch
from orthosparse.lab.training.assembly import assemble

RECIPE = Recipe(epochs=2, lr=0.2, batch=64, dense_init="orthogonal")


def digits_config(**changes):
    """An MLP of three layers on the digits; fields of the recipe and of the configuration may be mixed."""
    in_recipe = {name: changes.pop(name) for name in list(changes) if name in Recipe.__dataclass_fields__}
    settings = {"activation": "tanh", "density": 0.3, "scheme": "base", "model_options": {"depth": 3, "width": 32}}
    return Run("mlp", "digits", dataclasses.replace(RECIPE, **in_recipe), **{**settings, **changes})


@pytest.fixture(scope="session")
def config():
    return digits_config


@pytest.fixture
def assembled():
    def make(seed=1, **changes):
        settings = digits_config(**changes)
        return assemble(settings, seed, launch(device="cpu", precision=settings.recipe.precision))

    return make


@pytest.fixture
def same_weights():
    def check(first, second):
        first, second = first.state_dict(), second.state_dict()
        return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)

    return check


DEEP = Recipe(epochs=2, lr=0.05, batch=100, dense_init="orthogonal", gain=1.0247, bias_std=0.00448, precision="fp64")


def deep_config(model="mlp1000", depth=8, width=16, **changes):
    """A narrow, deep network on the digits; fields of the recipe and of the configuration may be mixed."""
    in_recipe = {name: changes.pop(name) for name in list(changes) if name in Recipe.__dataclass_fields__}
    recipe = dataclasses.replace(DEEP, **in_recipe)
    return Run(model, "digits", recipe, model_options={"depth": depth, "width": width}, **changes)


@pytest.fixture(scope="session")
def deep():
    return deep_config


@pytest.fixture(scope="session")
def four():
    """Four members of different starts, distributions and seeds."""

    def make(**shape):
        sparse = {"density": 0.25, **shape}
        return [
            (deep_config(scheme="eoi", **sparse), 1),
            (deep_config(distribution="uniform", scheme="base", **sparse), 2),
            (deep_config(**shape), 3),
            (deep_config(distribution="snip", scheme="ai", options={"iterations": 20}, **sparse), 1),
        ]

    return make
