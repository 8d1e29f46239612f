"""Layers that do not simply multiply by their weight."""

import copy

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from masking.models import coins, filled, x_of
from orthosparse import masking
from orthosparse.layers import find_layers, leaf


def masked_by_hand(model, masks):
    """The same model, dense, with zeros written into its weights."""
    plain = copy.deepcopy(model)
    with torch.no_grad():
        for name, mask in masks.items():
            tensor = plain.get_parameter(name) if name in dict(plain.named_parameters()) else None
            (plain.get_submodule(name).weight if tensor is None else tensor).mul_(mask)
    return plain


class Operators(TorchDispatchMode):
    """Which operators ran: the fast paths have one of their own."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(function.name())
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_attention_is_masked_in_training_and_in_the_fast_path(training, grad, generator):
    model = filled(nn.MultiheadAttention(8, 2, batch_first=True), generator)
    masks = coins(model, ["in_proj_weight", "out_proj"], generator)
    plain = masked_by_hand(model, masks).train(training)
    masking.attach(model, masks)
    model.train(training)
    x = x_of(generator, 2, 5, 8)
    with torch.set_grad_enabled(grad), Operators() as operators:
        torch.testing.assert_close(model(x, x, x)[0], plain(x, x, x)[0])
    assert ("aten::_native_multi_head_attention" in operators.names) == (not training and not grad)


def test_attention_with_separate_projections_is_masked(generator):
    model = filled(nn.MultiheadAttention(8, 2, kdim=6, vdim=4, batch_first=True), generator)
    masks = coins(model, ["q_proj_weight", "k_proj_weight", "v_proj_weight"], generator)
    plain = masked_by_hand(model, masks)
    masking.attach(model, masks)
    q, k, v = x_of(generator, 2, 5, 8), x_of(generator, 2, 5, 6), x_of(generator, 2, 5, 4)
    torch.testing.assert_close(model(q, k, v)[0], plain(q, k, v)[0])


def test_the_fast_path_of_a_transformer_encoder_is_masked(generator):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = filled(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), generator).eval()
    masks = coins(model, [*find_layers(model)], generator)
    assert "layers.1.self_attn.in_proj_weight" in masks
    plain = masked_by_hand(model, masks)
    masking.attach(model, masks)
    x = x_of(generator, 2, 5, 8)
    with torch.no_grad(), Operators() as operators:
        fast = model(x)
        torch.testing.assert_close(fast, plain(x))
    assert "aten::_transformer_encoder_layer_fwd" in operators.names
    assert torch.allclose(fast, model.train()(x), atol=1e-5)  # another order of operations


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_are_masked_and_can_be_copied_and_moved_at_any_time(kind, generator):
    model = filled(kind(4, 5, num_layers=2, batch_first=True), generator)
    masks = coins(model, [*find_layers(model)], generator)
    assert len(masks) == 4
    plain = masked_by_hand(model, masks)
    masking.attach(model, masks)
    x = x_of(generator, 2, 6, 4)
    for stage in (model, model.float(), copy.deepcopy(model), copy.deepcopy(copy.deepcopy(model))):
        torch.testing.assert_close(stage(x)[0], plain(x)[0])
    model(x)[0].sum().backward()
    for name, mask in masks.items():
        assert leaf(model, name).grad[~mask].count_nonzero() == 0
        assert leaf(model, name).grad[mask].count_nonzero() > 0
    twin = copy.deepcopy(model)
    masking.bake(twin)
    torch.testing.assert_close(twin(x)[0], plain(x)[0])
    assert type(twin) is kind
    copy.deepcopy(twin)


def test_convolutions_of_every_kind_are_masked(generator):
    model = nn.Sequential(
        nn.Conv1d(4, 8, 3, groups=2),
        nn.ConvTranspose1d(8, 6, 3),
        nn.Unflatten(2, (2, 3)),
        nn.Conv2d(6, 6, (1, 2), groups=6),
    )
    model = filled(model, generator)
    masks = coins(model, ["0", "1", "3"], generator)
    plain = masked_by_hand(model, masks)
    masking.attach(model, masks)
    x = x_of(generator, 2, 4, 6)
    torch.testing.assert_close(model(x), plain(x))


def test_hugging_face_conv1d_is_masked(generator):
    from transformers.pytorch_utils import Conv1D

    model = filled(nn.Sequential(Conv1D(6, 4)), generator)
    masks = coins(model, ["0"], generator)
    plain = masked_by_hand(model, masks)
    masking.attach(model, masks)
    x = x_of(generator, 3, 4)
    torch.testing.assert_close(model(x), plain(x))
