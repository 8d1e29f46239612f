import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from orthosparse.lab.inspection.head import Head, picker


def test_the_loss_is_the_mean_over_all_that_has_a_label(generator):
    logits = torch.randn(2, 5, 3, 4, generator=generator)
    labels = torch.randint(5, (2, 3, 4), generator=generator)
    each = [cross_entropy(logits[n, :, i, j], labels[n, i, j]) for n in range(2) for i in range(3) for j in range(4)]
    torch.testing.assert_close(Head().loss(logits, labels), torch.stack(each).mean())
    torch.testing.assert_close(Head(axis=-1).loss(logits.movedim(1, -1), labels), torch.stack(each).mean())


def test_a_picker_takes_keys_attributes_and_indices():
    out = nn.Linear(2, 3)
    assert picker(None) is None
    assert picker("a")({"a": 1}) == 1
    assert picker("out_features")(out) == 3
    assert picker("-1")([1, 2]) == 2
    with pytest.raises(ValueError, match="output: 'b' is not in what the model returns, a dict"):
        picker("b")({"a": 1})
