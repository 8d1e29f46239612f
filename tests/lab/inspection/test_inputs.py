import pytest
import torch

from orthosparse.lab.data import load
from orthosparse.lab.inspection.inputs import from_data, gaussian, random_tokens


def test_noise_is_standard_normal_and_follows_from_the_generator():
    one, same = (gaussian((3, 20, 20), 4, 50, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(one.x, same.x)
    assert one.x.std() == pytest.approx(1, abs=0.02)
    assert set(one.labels.tolist()) == {0, 1, 2, 3}
    assert "Gaussian inputs and random labels" in one.source


def test_samples_of_a_set_are_normalised_training_images():
    data = load("digits")
    inputs = from_data(data, 64, seed=3)
    assert inputs.x.shape == (64, 1, 8, 8)
    assert inputs.x.mean() == pytest.approx(0, abs=0.1)
    assert inputs.source == "64 training samples of digits"
    assert torch.equal(inputs.x, from_data(data, 64, seed=3).x)


def test_labels_have_the_sides_that_a_model_answers_for():
    assert gaussian((3, 4, 4), 21, 5, sides=(4, 4)).labels.shape == (5, 4, 4)


def test_tokens_are_drawn_from_the_whole_vocabulary():
    draw = {"embedding": "wte", "sides": (64,), "generator": torch.Generator().manual_seed(1)}
    inputs = random_tokens((64,), 5, 7, 20, **draw)
    assert set(inputs.x.flatten().tolist()) == set(range(5))
    assert set(inputs.labels.flatten().tolist()) == set(range(7))
    assert inputs.embedding == "wte"
    assert "random tokens out of 5" in inputs.source
