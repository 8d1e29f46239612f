import dataclasses

import pytest
import torch

from orthosparse.lab.training.objective import binary_cross_entropy, hits, objective
from orthosparse.lab.training.recipe import Recipe

RECIPE = Recipe(epochs=1, lr=0.1)


@pytest.fixture
def batch(generator):
    logits = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)
    return logits, torch.randint(4, (2, 6), generator=generator)


def test_cross_entropy_is_the_sum_of_minus_the_logarithms_of_the_right_probabilities(batch):
    logits, labels = batch
    right = logits.softmax(2).gather(2, labels.unsqueeze(2)).squeeze(2)
    torch.testing.assert_close(objective(RECIPE)(logits, labels), -right.log().sum(1))


def test_smoothing_mixes_the_target_with_the_uniform_distribution(batch):
    logits, labels = batch
    target = 0.9 * torch.nn.functional.one_hot(labels, 4) + 0.1 / 4
    smoothed = objective(dataclasses.replace(RECIPE, label_smoothing=0.1))
    torch.testing.assert_close(smoothed(logits, labels), -(target * logits.log_softmax(2)).sum((1, 2)))


@pytest.mark.parametrize("loss", ["cross_entropy", "bce"])
def test_parts_of_a_batch_add_up_to_the_whole(batch, loss):
    logits, labels = batch
    whole = objective(dataclasses.replace(RECIPE, loss=loss))
    torch.testing.assert_close(
        whole(logits[:, :1], labels[:, :1]) + whole(logits[:, 1:], labels[:, 1:]), whole(logits, labels)
    )


@pytest.mark.parametrize("loss", ["cross_entropy", "bce"])
def test_an_empty_part_costs_nothing_and_keeps_its_gradient_finite(loss):
    logits = torch.zeros(1, 0, 4, requires_grad=True)
    value = objective(dataclasses.replace(RECIPE, loss=loss))(logits, torch.zeros(1, 0, dtype=torch.int64))
    value.sum().backward()
    assert value == 0


def test_binary_cross_entropy_counts_both_classes_of_a_mixed_image_as_present():
    logits = torch.tensor([[[2.0, -1.0, 0.0]]], dtype=torch.float64)
    mixed = torch.tensor([[[0.7, 0.3, 0.0]]], dtype=torch.float64)
    p = logits.sigmoid()[0, 0]
    expected = -(p[0].log() + p[1].log() + (1 - p[2]).log()) / 3
    torch.testing.assert_close(binary_cross_entropy(logits, mixed), expected.view(1))


def test_hits_count_the_largest_logits_and_the_largest_probabilities():
    logits = torch.tensor([[[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]])
    assert hits(logits, torch.tensor([[1, 1, 1]])) == 2
    assert hits(logits, torch.tensor([[[0.4, 0.6], [0.4, 0.6], [0.6, 0.4]]])) == 1
