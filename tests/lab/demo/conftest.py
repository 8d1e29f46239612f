import pytest

from orthosparse.lab.demo.networks import Shape, build_starts, scaled_digits


@pytest.fixture(scope="session")
def digits():
    return scaled_digits()


@pytest.fixture(scope="session")
def small():
    return Shape(depth=6, width=24, ai_iterations=60)


@pytest.fixture
def starts(small, digits):
    return build_starts(small, digits.in_shape, digits.classes, seed=3)
