"""What a masked tensor is: values, gradients, memory, and what may follow the mask."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from contracts.states import assert_same, state_of
from masking.models import coins, filled, mlp, sparse_mlp, x_of
from orthosparse import masking
from orthosparse.layers import leaf


def test_the_module_computes_with_the_masked_weight_and_the_parameter_holds_the_zeros(generator):
    dense = mlp(generator)
    model = copy.deepcopy(dense)
    masks = coins(model, ["0", "2.0"], generator)
    masking.attach(model, masks)
    with torch.no_grad():
        dense[0].weight.mul_(masks["0"])
        dense[2][0].weight.mul_(masks["2.0"])
    x = x_of(generator, 4, 5)
    torch.testing.assert_close(model(x), dense(x))
    assert torch.equal(leaf(model[0], "weight"), dense[0].weight)
    assert parametrize.is_parametrized(model[0], "weight")


def test_gradients_off_the_mask_are_positive_zeros_whatever_comes_from_above(generator):
    model, masks = sparse_mlp(generator)
    above = torch.full((7, 5), float("inf"))
    above[0] = float("nan")
    above[1] = -1.0
    model[0].weight.backward(above)
    off = leaf(model[0], "weight").grad[~masks["0"]]
    assert torch.equal(off.view(torch.int32), torch.zeros_like(off, dtype=torch.int32))  # not even -0.0
    assert torch.equal(leaf(model[0], "weight").grad[1][masks["0"][1]], above[1][masks["0"][1]])


def test_values_off_the_mask_never_reach_the_output(generator):
    model, masks = sparse_mlp(generator)
    x = x_of(generator, 4, 5)
    before = model(x)
    with torch.no_grad():
        leaf(model[0], "weight")[~masks["0"]] = float("nan")
    torch.testing.assert_close(model(x), before)


def test_an_active_weight_may_be_zero_and_stays_active(generator):
    model, masks = sparse_mlp(generator)
    with torch.no_grad():
        leaf(model[0], "weight").zero_()
    model(x_of(generator, 4, 5)).sum().backward()
    assert leaf(model[0], "weight").grad[masks["0"]].count_nonzero() > 0
    assert torch.equal(masking.masks_of(model)["0"], masks["0"])


def test_attach_keeps_the_parameter_its_memory_and_what_is_known_of_it(generator):
    model = mlp(generator)
    parameter = model[0].weight
    parameter.requires_grad_(False)
    pointer = parameter.data_ptr()
    masking.attach(model, coins(model, ["0"], generator))
    assert leaf(model[0], "weight") is parameter
    assert parameter.data_ptr() == pointer
    assert not parameter.requires_grad
    assert not model[0].weight.requires_grad
    assert {id(p) for p in model.parameters()} >= {id(parameter)}
    assert len([*model.parameters()]) == 6


def test_the_mask_is_a_copy_with_the_memory_format_of_the_weight(generator):
    model = filled(nn.Sequential(nn.Conv2d(4, 6, 3)), generator).to(memory_format=torch.channels_last)
    masks = coins(model, ["0"], generator)
    masking.attach(model, masks)
    assert model[0].weight_mask.is_contiguous(memory_format=torch.channels_last)
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
    kept = masks["0"].clone()
    masks["0"].fill_(True)
    assert torch.equal(masking.masks_of(model)["0"], kept)


def test_buffers_may_be_written_between_forward_and_backward(generator):
    # DDP on CUDA does: the first rank's buffers come in every forward pass, of which there may be two.
    model, masks = sparse_mlp(generator)
    loss = model(x_of(generator, 4, 5)).sum()
    for buffer in model.buffers():
        buffer.copy_(buffer.clone())
    loss.backward()
    assert leaf(model[0], "weight").grad[~masks["0"]].count_nonzero() == 0


def test_a_mask_that_is_set_aside_gives_the_parameter_itself(generator):
    model, masks = sparse_mlp(generator)
    masked = model[0].parametrizations.weight
    masked.holder.bypassed = True
    assert model[0].weight is masked.original
    assert torch.equal(model[0].weight_mask, masks["0"])
    model[0].weight = torch.ones(7, 5)
    assert torch.equal(masked.original, masks["0"].float())  # what is assigned is masked all the same
    masked.holder.bypassed = False
    masked.original.data.fill_(2.0)
    assert torch.equal(model[0].weight, 2 * masks["0"].float())


def test_training_mode_is_passed_on(generator):
    model = mlp(generator).eval()
    masking.attach(model, coins(model, ["0"], generator))
    assert not any(module.training for module in model.modules())


def test_assigning_to_the_tensor_writes_into_the_same_parameter_with_zeros_off_the_mask(generator):
    model, masks = sparse_mlp(generator)
    parameter, value = leaf(model[0], "weight"), torch.ones(7, 5)
    model[0].weight = value
    assert leaf(model[0], "weight") is parameter
    assert torch.equal(parameter, masks["0"].float())
    assert value.all()
    with pytest.raises(ValueError, match=r"value: expected shape \(7, 5\); got \(5, 7\)"):
        model[0].weight = torch.ones(5, 7)


def test_another_parametrization_may_follow_the_mask(generator):
    model, masks = sparse_mlp(generator)

    class Twice(nn.Module):
        def forward(self, value):
            return 2 * value

        def right_inverse(self, value):
            return value / 2

    before = model[0].weight.detach()
    parametrize.register_parametrization(model[0], "weight", Twice())
    assert torch.equal(model[0].weight, 2 * before)
    model[0].weight = torch.ones(7, 5)
    assert torch.equal(leaf(model[0], "weight"), masks["0"] / 2)
    with pytest.raises(ValueError, match="'0' has another parametrization after its mask"):
        masking.bake(model)
    assert masking.is_sparsified(model)


class Transposed(nn.Module):
    def forward(self, value):
        return value.mT


class Halves(nn.Module):
    def forward(self, value):
        return value.chunk(2)


@pytest.mark.parametrize(
    ("register", "message"),
    [
        (nn.utils.parametrizations.weight_norm, "_WeightNorm cannot compute it: .*'weight_v'"),
        (nn.utils.parametrizations.orthogonal, "_Orthogonal cannot compute it: .*NoneType"),
        (
            partial(nn.utils.parametrizations.orthogonal, orthogonal_map="cayley", use_trivialization=False),
            "_Orthogonal does not",
        ),
        (
            partial(parametrize.register_parametrization, tensor_name="weight", parametrization=nn.Softmax(0)),
            "Softmax does not",
        ),
        (
            partial(
                parametrize.register_parametrization, tensor_name="weight", parametrization=Transposed(), unsafe=True
            ),
            "Transposed does not",
        ),
        (
            partial(parametrize.register_parametrization, tensor_name="weight", parametrization=Halves(), unsafe=True),
            "Halves does not",
        ),
    ],
)
def test_a_parametrization_that_does_not_keep_the_zeros_of_a_mask_cannot_follow_it(register, message, generator):
    model, _ = sparse_mlp(generator)
    keys, weight = [*model.state_dict()], model[0].weight.detach()
    state = torch.get_rng_state()
    with pytest.raises(ValueError, match=f"parametrization: expected one that .* {message}"):
        register(model[0])
    assert [*model.state_dict()] == keys
    assert torch.equal(model[0].weight, weight)
    assert torch.equal(torch.get_rng_state(), state)


def test_masks_that_a_scheme_gives_away_are_not_copied():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    masks = {"0": torch.eye(3, dtype=torch.bool), "1": torch.eye(3, dtype=torch.bool).T.flip(0)}
    with torch.no_grad():
        for name, mask in masks.items():
            model[int(name)].weight.mul_(mask)
    masking.attach(model, masks, filled=True)
    held = masking.masked_layers(model)
    assert held["0"].holder.mask.data_ptr() == masks["0"].data_ptr()
    assert_same(masking.masks_of(model), masks)


@pytest.mark.parametrize("layers", [3, [], nn.Linear(2, 2), {"0": 1}])
def test_layers_that_are_none_are_named_before_anything_changes(layers, generator):
    model = mlp(generator)
    with pytest.raises(TypeError, match="layers: expected a mapping from layer names to Layer"):
        masking.attach(model, coins(model, ["0"], generator), layers=layers)
    with pytest.raises(TypeError, match="filled: expected True or False; got 7"):
        masking.attach(model, coins(model, ["0"], generator), filled=7)
    assert not masking.masks_of(model)


def test_a_tensor_whose_name_torch_cannot_parametrize_is_refused_before_anything_changes(generator):
    class Memory(nn.Module):
        def __init__(self):
            super().__init__()
            self.read, self.keys = nn.Linear(4, 4), nn.Parameter(torch.randn(4, 4, generator=generator))

    model, mask = Memory(), torch.eye(4, dtype=torch.bool)
    with pytest.raises(ValueError, match="masks: 'keys' has a name, 'keys', that torch's parametrizations cannot have"):
        masking.attach(model, {"read": mask, "keys": mask})
    assert [*model.state_dict()] == ["keys", "read.weight", "read.bias"]


def test_weights_of_eight_bits_are_refused_before_anything_changes():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = nn.Parameter(model[1].weight.detach().to(torch.float8_e4m3fn))
    before = model[0].weight.clone()
    with pytest.raises(ValueError, match=r"masks: '1' is of type torch\.float8_e4m3fn, which torch cannot mask"):
        masking.attach(model, dict.fromkeys("01", torch.eye(4, dtype=torch.bool)))
    assert masking.masks_of(model) == {}
    assert torch.equal(model[0].weight, before)


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
@pytest.mark.parametrize(
    ("option", "message"),
    [({"sparse": True}, "has sparse gradients, .* sparse=False"), ({"max_norm": 1.0}, "is scaled in place")],
)
def test_an_embedding_that_cannot_have_a_mask_is_refused_and_the_model_unchanged(kind, option, message):
    model = nn.Sequential(nn.Linear(4, 6), kind(6, 3, **option))
    before = state_of(model)
    with pytest.raises(ValueError, match=f"masks: '1' {message}"):
        masking.attach(model, {"0": torch.eye(6, 4).bool(), "1": torch.eye(6, 3).bool()})
    assert_same(before, model.state_dict())
