import pytest
import torch

from orthosparse.lab.data import load
from orthosparse.lab.inspection import from_data, gaussian


def test_noise_is_standard_normal_and_follows_from_the_generator():
    one, same = (gaussian((3, 20, 20), 4, 50, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(one.images, same.images)
    assert one.images.std() == pytest.approx(1, abs=0.02)
    assert set(one.labels.tolist()) == {0, 1, 2, 3}
    assert "Gaussian inputs and random labels" in one.source


def test_samples_of_a_set_are_normalised_training_images():
    data = load("digits")
    inputs = from_data(data, 64, seed=3)
    assert inputs.images.shape == (64, 1, 8, 8)
    assert inputs.images.mean() == pytest.approx(0, abs=0.1)
    assert inputs.source == "64 training samples of digits"
    assert torch.equal(inputs.images, from_data(data, 64, seed=3).images)
