"""Masks on a model: what attaching, reading, replacing, baking, saving and loading them may and may not change."""

import copy
import io

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import TorchDispatchMode

from orthosparse import masking
from orthosparse.layers import find_layers, leaf
from orthosparse.sparsify import sparsify


def filled(model, generator):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 2)
    return model


def coins(model, names, generator):
    """A random mask for each (module, tensor) that a layer name stands for."""
    modules, masks = dict(model.named_modules()), {}
    for name in names:
        tensor = modules[name].weight if name in modules else model.get_parameter(name)
        masks[name] = torch.rand(tensor.shape, generator=generator) < 0.4
    return masks


def mlp(generator):
    return filled(nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Sequential(nn.Linear(7, 6)), nn.Linear(6, 3)), generator)


def sparse_mlp(generator):
    model = mlp(generator)
    masks = coins(model, ["0", "2.0"], generator)
    masking.attach(model, masks)
    return model, masks


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.two(torch.tanh(self.one(x)))


# Outputs are compared with assert_close: a kernel may follow the alignment of the memory, so that the same numbers at
# another place differ in the last bit. Weights are compared bit for bit.
def x_of(generator, *shape):
    return torch.randn(*shape, generator=generator)


# What a masked tensor is


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
    masked.holder.open = True
    assert model[0].weight is masked.original
    assert torch.equal(model[0].weight_mask, masks["0"])
    model[0].weight = torch.ones(7, 5)
    assert torch.equal(masked.original, masks["0"].float())  # what is assigned is masked all the same
    masked.holder.open = False
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


# Names and bad input


def test_masks_are_read_in_module_order_by_layer_name(generator):
    model = mlp(generator)
    masks = coins(model, ["3", "2.0", "0"], generator)
    assert not masking.is_sparsified(model)
    assert masking.masks_of(model) == {}
    masking.attach(model, masks)
    read = masking.masks_of(model)
    assert [*read] == ["0", "2.0", "3"]
    assert all(torch.equal(read[name], masks[name]) for name in masks)
    assert masking.is_sparsified(model)
    read["0"].fill_(True)
    assert torch.equal(masking.masks_of(model)["0"], masks["0"])


def test_the_root_module_and_tensors_of_other_names_are_reached(generator):
    linear = filled(nn.Linear(3, 2), generator)
    masking.attach(linear, {"weight": torch.eye(2, 3, dtype=torch.bool), "bias": torch.tensor([True, False])})
    assert [*masking.masks_of(linear)] == ["weight", "bias"]
    assert linear.bias[1] == 0
    assert sorted(linear.state_dict()) == ["bias", "bias_mask", "weight", "weight_mask"]


def test_layers_say_where_names_lead(generator):
    model = mlp(generator)
    layers = find_layers(model, exclude=["3"])
    masks = coins(model, ["0", "3"], generator)
    with pytest.raises(ValueError, match=r"masks: expected names among 0, 2\.0; got '3'"):
        masking.attach(model, masks, layers=layers)
    masking.attach(model, {"0": masks["0"]}, layers=layers)
    assert [*masking.masks_of(model)] == ["0"]


BAD = {
    "no such name": (lambda m: {**m, "nowhere": m["0"]}, ValueError, "got 'nowhere'"),
    "not bool": (lambda m: {**m, "3": torch.ones(3, 6)}, TypeError, "bool tensor for '3'; got torch.float32"),
    "not a tensor": (lambda m: {**m, "3": [[True]]}, TypeError, "bool tensor for '3'; got <class 'list'>"),
    "shape": (lambda m: {**m, "3": torch.ones(6, 3, dtype=torch.bool)}, ValueError, r"\(3, 6\) for '3'; got \(6, 3\)"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("function", [masking.attach, masking.replace_masks])
def test_bad_masks_are_refused_and_nothing_changes(case, function, generator):
    change, error, message = BAD[case]
    model = mlp(generator)
    masks = coins(model, ["0", "3"], generator)
    if function is masking.replace_masks:
        masking.attach(model, masks)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(error, match=message):
        function(model, change({name: ~mask for name, mask in masks.items()}))
    after = model.state_dict()
    assert [*after] == [*before]
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_a_tensor_that_cannot_get_a_mask_is_refused_and_nothing_changes(generator):
    model, masks = sparse_mlp(generator)
    parametrize.register_parametrization(model[3], "bias", nn.Tanh())
    third = {"3": torch.ones(3, 6, dtype=torch.bool)}
    with pytest.raises(ValueError, match="'0' has a mask already; replace_masks"):
        masking.attach(model, {**third, "0": masks["0"]})
    model.register_buffer("spare_mask", torch.ones(2))
    model.register_parameter("spare", nn.Parameter(torch.ones(2)))
    with pytest.raises(ValueError, match="an attribute 'spare_mask' of the module's own"):
        masking.attach(model, {**third, "spare": torch.ones(2, dtype=torch.bool)})
    with pytest.raises(ValueError, match=r"names among .*; got '3\.bias'"):  # computed by another parametrization
        masking.attach(model, {**third, "3.bias": torch.ones(3, dtype=torch.bool)})
    parametrize.register_parametrization(model[3], "weight", nn.Identity())
    with pytest.raises(ValueError, match="'3' has another parametrization"):
        masking.attach(model, third, layers=find_layers(model))
    with pytest.raises(ValueError, match="has no shape yet"):
        masking.attach(nn.Sequential(nn.LazyLinear(3)), {"0": torch.ones(3, 3, dtype=torch.bool)})
    assert [*masking.masks_of(model)] == ["0", "2.0"]


# Replacing


def test_what_leaves_and_what_enters_is_zero_and_the_rest_is_kept(generator):
    model, masks = sparse_mlp(generator)
    parameter = leaf(model[0], "weight")
    with torch.no_grad():
        parameter[~masks["0"]] = 5.0  # drifted, by whatever means
    before, new = parameter.detach().clone(), torch.rand(7, 5, generator=generator) < 0.5
    buffer = model[0].weight_mask
    masking.replace_masks(model, {"0": new})
    assert torch.equal(parameter, before * (new & masks["0"]))
    assert torch.equal(masking.masks_of(model)["0"], new)
    assert torch.equal(masking.masks_of(model)["2.0"], masks["2.0"])
    assert model[0].weight_mask is buffer  # in place: compiled graphs and DDP hold on to it


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_an_optimizer_that_is_named_forgets_what_leaves_and_enters(kind, generator):
    model, masks = sparse_mlp(generator)
    make = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        "adam": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    }[kind]
    optimizer = make(model.parameters())
    x = x_of(generator, 4, 5)
    model(x).square().sum().backward()
    optimizer.step()
    new = torch.rand(7, 5, generator=generator) < 0.5
    masking.replace_masks(model, {"0": new}, optimizer=optimizer)
    parameter, stayed = leaf(model[0], "weight"), new & masks["0"]
    held = [value for value in optimizer.state[parameter].values() if value.shape == parameter.shape]
    assert len(held) == (1 if kind == "sgd" else 3)
    assert all(value[~stayed].count_nonzero() == 0 for value in held)
    assert all(value[stayed].count_nonzero() > 0 for value in held)
    for _ in range(3):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    assert parameter[~new].count_nonzero() == 0
    assert parameter[new & ~masks["0"]].count_nonzero() > 0


def test_a_momentum_that_is_not_forgotten_stays_out_of_the_model_and_its_state_dict(generator):
    model, masks = sparse_mlp(generator)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = x_of(generator, 4, 5)
    model(x).square().sum().backward()
    optimizer.step()
    masking.replace_masks(model, {"0": ~masks["0"]})
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()
    assert leaf(model[0], "weight")[masks["0"]].count_nonzero() > 0  # the momentum still pushes
    assert model[0].weight[masks["0"]].count_nonzero() == 0
    assert model.state_dict()["0.weight"][masks["0"]].count_nonzero() == 0


# The order of the parameters, by which optimizers save what they hold


class Backwards(nn.Module):
    """Its declaration names the parameters in another order than the module has them."""

    __orthosparse__ = {"third": "out in", "first": "out in"}  # noqa: RUF012

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Parameter(torch.zeros(4, 3)), nn.Parameter(torch.zeros(3))
        self.third = nn.Parameter(torch.zeros(4, 4))

    def forward(self, x):
        return (x @ self.first.T + self.second.sum()) @ self.third.T


ORDERED = {
    "lstm": lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True),
    "gru": lambda: nn.GRU(3, 4),
    "declared": Backwards,
    "attention": lambda: nn.MultiheadAttention(8, 2, kdim=6, vdim=4),
}


@pytest.mark.parametrize("kind", ORDERED)
def test_the_parameters_have_one_order_whatever_order_the_masks_come_in(kind, generator):
    plain = [name for name, _ in ORDERED[kind]().named_parameters()]
    models = [filled(ORDERED[kind](), generator) for _ in range(4)]
    masks = coins(models[0], [*find_layers(models[0])], generator)
    assert len(masks) > 1
    masking.attach(models[0], masks)
    masking.attach(models[1], dict(reversed(masks.items())))
    for name in reversed(masks):
        masking.attach(models[2], {name: masks[name]})
    masking.load_sparse(models[3], models[1].state_dict())
    orders = [[name for name, _ in model.named_parameters()] for model in models]
    assert all(order == orders[0] for order in orders)
    masked = [name.split(".")[-2] for name in orders[0] if name.startswith("parametrizations.")]
    assert masked == [name for name in plain if name in masked]
    assert [*masking.masks_of(models[0])] == [*masking.masks_of(models[3])]
    assert kind == "declared" or [*find_layers(models[0])] == [*masks] == [*masking.masks_of(models[0])]


@pytest.mark.parametrize("kind", ORDERED)
def test_bake_gives_back_the_order_of_modules_with_several_masks(kind, generator):
    model = filled(ORDERED[kind](), generator)
    before = [*model.named_parameters()]
    masks = coins(model, [*find_layers(model)], generator)
    masking.attach(model, dict(reversed(masks.items())))
    masking.bake(copy.deepcopy(model))
    masking.bake(model)
    after = [*model.named_parameters()]
    assert [name for name, _ in after] == [name for name, _ in before]
    assert all(a is b for (_, a), (_, b) in zip(after, before, strict=True))


@pytest.mark.parametrize("kind", ["lstm", "declared"])
def test_an_optimizer_resumed_with_a_loaded_model_holds_each_momentum_at_its_parameter(kind, generator):
    def trained(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        output = model(x_of(torch.Generator().manual_seed(3), 5, 3))
        (output[0] if isinstance(output, tuple) else output).square().sum().backward()
        optimizer.step()
        return optimizer

    model, again = filled(ORDERED[kind](), generator), ORDERED[kind]()
    sparsify(model, 0.6, generator=generator)
    optimizer = trained(model)
    masking.load_sparse(again, model.state_dict())
    resumed = torch.optim.SGD(again.parameters(), lr=0.1, momentum=0.9)
    resumed.load_state_dict(optimizer.state_dict())
    theirs = dict(again.named_parameters())
    for name, parameter in model.named_parameters():
        held = optimizer.state[parameter]["momentum_buffer"]
        assert torch.equal(resumed.state[theirs[name]]["momentum_buffer"], held), name


# Baking, and copies that share a class


def test_bake_gives_back_plain_modules_with_the_same_parameters_in_the_same_order(generator):
    model = mlp(generator)
    keys, parameters, types = [*model.state_dict()], [*model.parameters()], [type(m) for m in model.modules()]
    masks = coins(model, ["0", "2.0"], generator)
    masking.attach(model, masks)
    x = x_of(generator, 4, 5)
    expected = model(x)
    masking.bake(model)
    assert [*model.state_dict()] == keys
    assert [type(m) for m in model.modules()] == types
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    torch.testing.assert_close(model(x), expected)
    assert model[0].weight[~masks["0"]].count_nonzero() == 0
    assert not hasattr(model[0], "weight_mask")
    assert not model[0]._state_dict_hooks
    assert not model[0]._load_state_dict_pre_hooks
    torch.save(model, io.BytesIO())


def test_a_baked_model_can_be_masked_again(generator):
    model, masks = sparse_mlp(generator)
    masking.bake(model)
    masking.attach(model, {"0": ~masks["0"]})
    assert model[0].weight.count_nonzero() == 0


def test_a_deep_copy_is_independent(generator):
    model, masks = sparse_mlp(generator)
    twin = copy.deepcopy(model)
    x = x_of(generator, 4, 5)
    torch.testing.assert_close(model(x), twin(x))
    before = model(x)
    masking.replace_masks(twin, {"0": ~masks["0"]})
    twin.load_state_dict({name: torch.zeros_like(value) for name, value in twin.state_dict().items()})
    torch.testing.assert_close(model(x), before)
    assert torch.equal(masking.masks_of(model)["0"], masks["0"])


@pytest.mark.parametrize("baked", ["copy", "original"])
def test_baking_one_of_two_copies_leaves_the_other_masked(baked, generator):
    model = nn.Sequential(filled(nn.LSTM(3, 4), generator))
    masks = coins(model, ["0.weight_ih_l0", "0.weight_hh_l0"], generator)
    masking.attach(model, masks)
    one, other = (copy.deepcopy(model), model) if baked == "copy" else (model, copy.deepcopy(model))
    masking.bake(one)
    assert not masking.is_sparsified(one)
    assert masking.masks_of(other).keys() == masks.keys()
    assert torch.equal(one[0].weight_ih_l0, other[0].weight_ih_l0)
    assert torch.equal(one[0].weight_hh_l0, other[0].weight_hh_l0)
    assert "0.weight_ih_l0_mask" in other.state_dict()


def test_a_second_mask_on_a_copy_leaves_the_original_alone(generator):
    model = filled(nn.LSTM(3, 4), generator)
    masks = coins(model, ["weight_ih_l0", "weight_hh_l0"], generator)
    masking.attach(model, {"weight_ih_l0": masks["weight_ih_l0"]})
    twin = copy.deepcopy(model)
    masking.attach(twin, {"weight_hh_l0": masks["weight_hh_l0"]})
    assert [*masking.masks_of(model)] == ["weight_ih_l0"]
    assert model.weight_hh_l0.count_nonzero() == 64
    assert twin.weight_hh_l0[~masks["weight_hh_l0"]].count_nonzero() == 0


def test_pickling_a_masked_module_says_what_to_do_instead(generator):
    model, _ = sparse_mlp(generator)
    with pytest.raises(RuntimeError, match="only supported through state_dict"):
        torch.save(model, io.BytesIO())


# The state dict


def through_torch(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def through_safetensors(state):
    return safetensors.torch.load(safetensors.torch.save(dict(state)))


@pytest.mark.parametrize("through", [through_torch, through_safetensors])
def test_a_sparse_state_dict_brings_weights_and_masks_onto_other_masks_and_onto_a_dense_model(through, generator):
    model, masks = sparse_mlp(generator)
    with torch.no_grad():
        leaf(model[0], "weight").zero_()  # active weights whose value is zero: the mask is not to be guessed
    state = through(model.state_dict())
    assert {key for key in state if "parametrizations" in key} == set()
    x = x_of(generator, 4, 5)
    other, _ = sparse_mlp(generator)
    assert other.load_state_dict(state, strict=True) == ([], [])
    dense = mlp(generator)
    assert masking.load_sparse(dense, state) == ([], [])
    for loaded in (other, dense):
        torch.testing.assert_close(loaded(x), model(x))
        assert all(torch.equal(mask, masks[name]) for name, mask in masking.masks_of(loaded).items())


def test_a_dense_checkpoint_loads_strictly_and_the_mask_stays(generator):
    model, masks = sparse_mlp(generator)
    dense = mlp(generator).state_dict()
    kept = {name: value.clone() for name, value in dense.items()}
    assert model.load_state_dict(dense, strict=True) == ([], [])
    assert torch.equal(model[0].weight, torch.where(masks["0"], dense["0.weight"], 0))
    assert torch.equal(leaf(model[0], "weight"), model[0].weight)
    assert torch.equal(model[3].weight, dense["3.weight"])
    assert torch.equal(masking.masks_of(model)["0"], masks["0"])
    assert all(torch.equal(dense[name], kept[name]) for name in kept)


def test_assign_takes_the_values_and_leaves_the_callers_tensors_alone(generator):
    model, masks = sparse_mlp(generator)
    dense = {name: value.double() for name, value in mlp(generator).state_dict().items()}
    model[0].parametrizations.weight.original.requires_grad_(False)
    model.load_state_dict(dense, strict=True, assign=True)
    assert leaf(model[0], "weight").dtype is torch.float64
    assert not leaf(model[0], "weight").requires_grad
    assert torch.equal(model[0].weight, torch.where(masks["0"], dense["0.weight"], 0))
    assert dense["0.weight"].count_nonzero() == 35
    assert model[0].weight_mask.dtype is torch.bool


def test_missing_unexpected_and_misfit_keys_go_by_the_names_of_the_state_dict(generator):
    model, masks = sparse_mlp(generator)
    state = dict(model.state_dict())
    before = model[2][0].weight.detach().clone()
    del state["2.0.weight"]
    state["2.0.weights"] = torch.ones(1)
    with pytest.raises(RuntimeError, match=r'Missing key.*"2\.0\.weight"\. \n.*Unexpected key.*"2\.0\.weights"\. $'):
        model.load_state_dict(state)
    assert model.load_state_dict(state, strict=False) == (["2.0.weight"], ["2.0.weights"])
    assert torch.equal(model[2][0].weight, before)
    state = {**model.state_dict(), "0.weight": torch.ones(5, 7)}
    with pytest.raises(RuntimeError, match=r"size mismatch for 0\.weight: got torch\.Size\(\[5, 7\]\)"):
        model.load_state_dict(state)
    state = {**model.state_dict(), "0.weight_mask": masks["0"].float()}
    with pytest.raises(
        RuntimeError, match=r"mismatch for 0\.weight_mask: got torch\.Size\(\[7, 5\]\) \(torch\.float32"
    ):
        model.load_state_dict(state)
    assert torch.equal(masking.masks_of(model)["0"], masks["0"])
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"0\.weight_mask"'):
        mlp(generator).load_state_dict(model.state_dict())


def test_a_mask_alone_may_be_loaded(generator):
    model, _ = sparse_mlp(generator)
    before = model[0].weight.detach().clone()
    new = torch.rand(7, 5, generator=generator) < 0.5
    model.load_state_dict({"0.weight_mask": new}, strict=False)
    assert torch.equal(model[0].weight, before * new)
    assert torch.equal(masking.masks_of(model)["0"], new)


def test_the_state_dict_shares_memory_with_the_model_and_keeps_variables_when_asked(generator):
    model, _ = sparse_mlp(generator)
    model.state_dict()["0.weight"].zero_()
    assert model[0].weight.count_nonzero() == 0
    assert model.state_dict(keep_vars=True)["0.weight"] is leaf(model[0], "weight")
    assert "encoder.0.weight_mask" in model.state_dict(prefix="encoder.")


def test_saving_between_forward_and_backward_does_no_harm(generator):
    model, _ = sparse_mlp(generator)
    loss = model(x_of(generator, 4, 5)).sum() + leaf(model[0], "weight").square().sum()
    model.state_dict()
    loss.backward()


def test_load_sparse_drops_the_prefixes_of_wrappers(generator):
    model, masks = sparse_mlp(generator)
    state = {f"module._orig_mod.{name}": value for name, value in model.state_dict().items()}
    dense = mlp(generator)
    masking.load_sparse(torch.compile(dense), state)
    assert torch.equal(dense[0].weight, model[0].weight)
    assert torch.equal(masking.masks_of(dense)["2.0"], masks["2.0"])


def test_load_sparse_puts_on_only_the_masks_that_are_missing(generator):
    model, masks = sparse_mlp(generator)
    half = mlp(generator)
    masking.attach(half, {"0": ~masks["0"]})
    masking.load_sparse(half, model.state_dict())
    assert all(torch.equal(mask, masks[name]) for name, mask in masking.masks_of(half).items())


def test_load_sparse_of_what_does_not_fit_puts_no_mask_on(generator):
    model, masks = sparse_mlp(generator)
    dense, state = mlp(generator), model.state_dict()
    with pytest.raises(RuntimeError, match=r'Missing key.*"3\.bias"'):
        masking.load_sparse(dense, {name: value for name, value in state.items() if name != "3.bias"})
    with pytest.raises(TypeError, match="bool tensor for '0'"):
        masking.load_sparse(dense, {**state, "0.weight_mask": masks["0"].float()})
    assert not masking.is_sparsified(dense)


def test_load_sparse_fills_a_model_on_the_meta_device(generator):
    model, masks = sparse_mlp(generator)
    with torch.device("meta"):
        empty = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Sequential(nn.Linear(7, 6)), nn.Linear(6, 3))
    masking.load_sparse(empty, model.state_dict(), assign=True)
    x = x_of(generator, 4, 5)
    torch.testing.assert_close(empty(x), model(x))
    assert torch.equal(masking.masks_of(empty)["0"], masks["0"])


def test_buffers_of_versioned_modules_load_as_they_would_without_masks(generator):
    model = filled(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), generator)
    masking.attach(model, coins(model, ["0"], generator))
    other = filled(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), generator)
    model[1].num_batches_tracked += 3
    assert masking.load_sparse(other, model.state_dict()) == ([], [])
    assert other[1].num_batches_tracked == 3


# Tied weights


def test_tied_tensors_share_one_mask_and_one_parameter(generator):
    model = filled(Tied(), generator)
    mask = torch.rand(4, 4, generator=generator) < 0.5
    masking.attach(model, {"one": mask})
    assert leaf(model.one, "weight") is leaf(model.two, "weight")
    assert [*masking.masks_of(model)] == ["one"]
    assert len([*model.parameters()]) == 1
    x = x_of(generator, 3, 4)
    dense = torch.where(mask, leaf(model.one, "weight").detach(), 0).requires_grad_()
    (torch.tanh(x @ dense.T) @ dense.T).sum().backward()
    model(x).sum().backward()
    assert torch.allclose(leaf(model.one, "weight").grad, torch.where(mask, dense.grad, 0))
    masking.replace_masks(model, {"one": ~mask})
    assert model.two.weight[mask].count_nonzero() == 0
    assert torch.equal(model.two.weight_mask, ~mask)


@pytest.mark.parametrize("change", [copy.deepcopy, lambda m: m.double(), lambda m: m.to_empty(device="cpu")])
def test_tied_tensors_stay_tied(change, generator):
    model = filled(Tied(), generator)
    masking.attach(model, {"one": torch.rand(4, 4, generator=generator) < 0.5})
    changed = change(model)
    assert changed.one.weight_mask is changed.two.weight_mask
    assert leaf(changed.one, "weight") is leaf(changed.two, "weight")


def test_tied_tensors_are_found_from_either_name_and_through_layers(generator):
    mask = torch.rand(4, 4, generator=generator) < 0.5
    model = filled(Tied(), generator)
    with pytest.raises(ValueError, match="one mask for the tied 'one' and 'two'"):
        masking.attach(model, {"one": mask, "two": mask})
    masking.attach(model, {"two": mask})
    assert torch.equal(masking.masks_of(model)["one"], mask)
    masking.bake(model)
    assert model.one.weight is model.two.weight
    masking.attach(model, {"one": mask}, layers=find_layers(model))
    assert torch.equal(model.two.weight_mask, mask)


def test_tied_tensors_load_from_their_state_dict(generator):
    model, other = filled(Tied(), generator), filled(Tied(), generator)
    masking.attach(model, {"one": torch.rand(4, 4, generator=generator) < 0.5})
    masking.load_sparse(other, model.state_dict())
    x = x_of(generator, 3, 4)
    torch.testing.assert_close(other(x), model(x))
    assert other.one.weight_mask is other.two.weight_mask


def shared(generator):
    """One module under two names."""
    model = nn.Sequential(filled(nn.Linear(4, 4), generator), nn.Tanh())
    return model.append(model[0])


@pytest.mark.parametrize("name", ["0", "2"])
def test_a_module_under_two_names_gets_one_mask_by_either_and_loads_from_its_state_dict(name, generator):
    model, other = shared(generator), shared(generator)
    mask = torch.rand(4, 4, generator=generator) < 0.5
    masking.attach(model, {name: mask})
    assert [*masking.masks_of(model)] == ["0"]
    state = model.state_dict()
    assert sorted(state) == [f"{i}.{key}" for i in (0, 2) for key in ("bias", "weight", "weight_mask")]
    assert masking.load_sparse(other, state) == ([], [])
    assert other[0] is other[2]
    assert torch.equal(masking.masks_of(other)["0"], mask)
    x = x_of(generator, 3, 4)
    torch.testing.assert_close(other(x), model(x))
    masking.bake(other)
    torch.testing.assert_close(other(x), model(x))
    with pytest.raises(ValueError, match="one mask for the tied '0' and '2'"):
        masking.attach(other, {"0": mask, "2": mask})


# Layers that do not simply multiply by their weight


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


# Moving and casting


@pytest.mark.parametrize(
    "cast", [lambda m: m.half(), lambda m: m.to(torch.bfloat16), lambda m: m.double(), lambda m: m.type(torch.float64)]
)
def test_casting_a_model_leaves_its_masks_bool(cast, generator):
    model, masks = sparse_mlp(generator)
    cast(model)
    assert leaf(model[0], "weight").dtype is not torch.float32
    assert model[0].weight.dtype is leaf(model[0], "weight").dtype
    assert all(torch.equal(mask, masks[name]) for name, mask in masking.masks_of(model).items())


def test_memory_without_content_keeps_the_masks(generator):
    model, masks = sparse_mlp(generator)
    model.to_empty(device="cpu")
    assert all(torch.equal(mask, masks[name]) for name, mask in masking.masks_of(model).items())


def test_masks_that_were_lost_on_the_meta_device_are_missed_not_guessed(generator):
    model, masks = sparse_mlp(generator)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    x = x_of(generator, 4, 5)
    expected = model(x)
    model.to("meta")
    assert model(x.to("meta")).is_meta
    model.to_empty(device="cpu")
    with pytest.raises(RuntimeError, match="the mask was lost on the meta device"):
        model(x)
    with pytest.raises(RuntimeError, match=r'Missing key.*"0\.weight_mask", "2\.0\.weight_mask"'):
        model.load_state_dict({name: value for name, value in state.items() if "mask" not in name})
    twin = copy.deepcopy(model)
    model.load_state_dict(state)
    torch.testing.assert_close(model(x), expected)
    twin.load_state_dict({name: value for name, value in state.items() if "mask" not in name}, strict=False)
    masking.replace_masks(twin, masks)
    torch.testing.assert_close(twin(x), expected)


# Functional calls


def test_functional_calls_differentiate_through_the_mask(generator):
    model, masks = sparse_mlp(generator)
    x = x_of(generator, 4, 5)
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    gradients = torch.func.grad(lambda p: torch.func.functional_call(model, p, x).sum())(parameters)
    model(x).sum().backward()
    for name, value in model.named_parameters():
        assert torch.allclose(gradients[name], value.grad)
    assert gradients["0.parametrizations.weight.original"][~masks["0"]].count_nonzero() == 0


def test_copies_with_masks_of_their_own_run_as_one_ensemble(generator):
    model, _ = sparse_mlp(generator)
    models = [copy.deepcopy(model) for _ in range(3)]
    for member in models:
        masking.replace_masks(member, coins(member, ["0", "2.0"], generator))
        filled(member, generator)
    stacked = torch.func.stack_module_state(models)
    skeleton = copy.deepcopy(model).to("meta")
    x = x_of(generator, 4, 5)
    together = torch.vmap(lambda p, b: torch.func.functional_call(skeleton, (p, b), x))(*stacked)
    for output, member in zip(together, models, strict=True):
        assert torch.allclose(output, member(x), atol=1e-6)


# Exported programs


class LastState(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 5, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


EXPORTED = {
    "mlp": lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6)),
    "conv": lambda: nn.Sequential(nn.Conv1d(4, 6, 3, padding=1), nn.ReLU(), nn.Conv1d(6, 6, 1, groups=2)),
    "lstm": LastState,
    "attention": SelfAttention,
}


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo looks there itself
# torch's recurrent layers write to themselves in every forward pass, under any parametrization.
@pytest.mark.filterwarnings("ignore:The tensor attributes self.lstm._flat_weights")
@pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects happened:UserWarning")
@pytest.mark.filterwarnings("ignore:The given buffer is not writable:UserWarning")  # torch 2.11, reading its own file
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("kind", EXPORTED)
def test_an_exported_program_computes_with_the_masks_through_a_file_too(kind, strict, generator):
    model = filled(EXPORTED[kind](), generator).eval()
    masking.attach(model, coins(model, [*find_layers(model)], generator))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x, other = x_of(generator, 3, 4, 6), x_of(generator, 3, 4, 6)
    expected = model(other).detach()
    program, file = torch.export.export(model, (x,), strict=strict), io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for each in (program, torch.export.load(file)):
        output = each.module()(other)
        assert type(output) is torch.Tensor
        torch.testing.assert_close(output.detach(), expected)
    assert {name for name in program.state_dict if name.endswith("mask")} == {n for n, _ in model.named_buffers()}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    torch.testing.assert_close(model(other).detach(), expected)


@pytest.mark.parametrize("strict", [True, False])
def test_an_exported_program_trains_with_zeros_off_the_mask(strict, generator):
    model, masks = sparse_mlp(generator)
    x = x_of(generator, 4, 5)
    program = torch.export.export(model, (x,), strict=strict).module()
    program(x).square().sum().backward()
    model(x).square().sum().backward()
    gradients = {name: value.grad for name, value in program.named_parameters()}
    for name, value in model.named_parameters():
        torch.testing.assert_close(gradients[name], value.grad)
    assert gradients["0.parametrizations.weight.original"][~masks["0"]].count_nonzero() == 0


# Alone


def test_without_a_process_group_there_is_nothing_to_synchronize(generator):
    model, masks = sparse_mlp(generator)
    masking.synchronize(model)
    assert all(torch.equal(mask, masks[name]) for name, mask in masking.masks_of(model).items())
