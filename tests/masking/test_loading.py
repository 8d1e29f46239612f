"""load_sparse: everything or nothing, ties kept, wrong types named."""

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import orthosparse
from contracts.states import assert_same, state_of
from masking.models import Tied, filled, mlp, sparse_mlp, x_of
from orthosparse import masking
from orthosparse.layers import leaf


def snapshot(model):
    """All that loading can change: tensors, their identity, masks, classes."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: (value, value.detach().clone()) for name, value in tensors.items()}, [
        type(m) for m in model.modules()
    ]


def assert_unchanged(model, before):
    now = snapshot(model)
    assert [*now[0]] == [*before[0]]
    assert all(now[0][name][0] is value for name, (value, _) in before[0].items())
    assert all(torch.equal(now[0][name][1], copied) for name, (_, copied) in before[0].items())
    assert now[1] == before[1]


def forged(model, generator):
    """State dicts of `model` that do not fit it, by what is wrong with them."""
    good = state_of(model)
    mask = good["0.weight_mask"]
    return {
        "a weight of another shape": (RuntimeError, {**good, "3.weight": torch.zeros(2, 2)}),
        "a masked weight of another shape": (RuntimeError, {**good, "2.0.weight": torch.zeros(2, 2)}),
        "a missing bias": (RuntimeError, {key: value for key, value in good.items() if key != "3.bias"}),
        "a missing masked weight": (RuntimeError, {key: value for key, value in good.items() if key != "2.0.weight"}),
        "a key too many": (RuntimeError, {**good, "9.weight": torch.zeros(2)}),
        "integers": (TypeError, {**good, "3.weight": torch.zeros(3, 6, dtype=torch.int64)}),
        "complex numbers": (TypeError, {**good, "3.bias": torch.zeros(3, dtype=torch.complex64)}),
        "a sparse layout": (TypeError, {**good, "3.weight": torch.zeros(3, 6).to_sparse()}),
        "numpy": (TypeError, {**good, "3.weight": np.zeros((3, 6), dtype=np.float32)}),
        "nothing": (TypeError, {**good, "3.bias": None}),
        "no memory": (ValueError, {**good, "3.bias": torch.zeros(3, device="meta")}),
        "a mask of floats": (TypeError, {**good, "0.weight_mask": mask.float()}),
        "a numpy mask": (TypeError, {**good, "0.weight_mask": mask.numpy()}),
        "a mask of another shape": (ValueError, {**good, "0.weight_mask": mask.T}),
        "a key that is no name": (TypeError, {**good, 3: torch.zeros(2)}),
    }


@pytest.mark.parametrize("kind", ["dense", "masked"])
def test_a_state_dict_that_does_not_fit_changes_nothing_at_all(kind, generator):
    source, _ = sparse_mlp(generator)
    model = mlp(generator) if kind == "dense" else sparse_mlp(generator)[0]
    before = snapshot(model)
    for what, (error, state) in forged(source, generator).items():
        for assign in (False, True):
            with pytest.raises(error, match=r"^(state|masks): ") as caught:
                masking.load_sparse(model, state, assign=assign)
            assert type(caught.value) is error, what
            assert_unchanged(model, before)


def test_a_module_with_a_state_of_its_own_keeps_it_when_the_rest_does_not_fit():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = 0

        def get_extra_state(self):
            return self.count

        def set_extra_state(self, state):
            self.count = state

    model = nn.Sequential(Counter(), nn.Linear(2, 2))
    state = model.state_dict()
    state["0._extra_state"] = 7
    with pytest.raises(RuntimeError, match=r"size mismatch for 1\.bias"):
        masking.load_sparse(model, {**state, "1.bias": torch.zeros(3)})
    assert model[0].count == 0
    masking.load_sparse(model, state)
    assert model[0].count == 7


def test_a_lost_mask_is_still_lost_after_a_state_dict_that_does_not_fit(generator):
    model, _ = sparse_mlp(generator)
    state = state_of(model)
    x = x_of(generator, 4, 5)
    expected = model(x)
    model.to("meta").to_empty(device="cpu")
    with pytest.raises(RuntimeError, match=r"size mismatch for 3\.bias"):
        masking.load_sparse(model, {**state, "3.bias": torch.zeros(7)})
    with pytest.raises(RuntimeError, match="mask was lost"):
        model(x)
    masking.load_sparse(model, state)
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("model.pt", "state dict; got 'model.pt' .*torch.load and safetensors read one"),
        (None, "state dict; got None"),
        ([1], r"state dict; got \[1\]"),
        (nn.Linear(1, 1), "state dict; got Linear"),
    ],
)
def test_what_is_no_state_dict_is_named(state, message, generator):
    with pytest.raises(TypeError, match=f"^state: expected a {message}"):
        masking.load_sparse(mlp(generator), state)


def test_a_model_without_memory_needs_assignment(generator):
    source, _ = sparse_mlp(generator)
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Sequential(nn.Linear(7, 6)), nn.Linear(6, 3))
    with pytest.raises(ValueError, match=r"^assign: expected True"):
        masking.load_sparse(model, source.state_dict())
    assert not masking.is_sparsified(model)


def test_a_model_that_loads_in_its_own_way_is_asked_to():
    class Renamed(nn.Sequential):
        def load_state_dict(self, state, strict=True, assign=False):
            return super().load_state_dict({key.removeprefix("old."): value for key, value in state.items()}, strict)

    model = Renamed(nn.Linear(2, 2))
    masking.load_sparse(model, {"old.0.weight": torch.ones(2, 2), "old.0.bias": torch.ones(2)})
    assert (model[0].weight == 1).all()


def test_lazy_modules_take_their_shape_from_a_state_dict_that_fits(generator):
    lazy = nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 2))
    state = filled(nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 2)), generator).state_dict()
    with pytest.raises(RuntimeError, match=r"size mismatch for 1\.bias"):
        masking.load_sparse(lazy, {**state, "1.bias": torch.zeros(3)})
    assert nn.parameter.is_lazy(lazy[0].weight)
    masking.load_sparse(lazy, state)
    assert torch.equal(lazy[0].weight, state["0.weight"])


# Tied tensors


def sparse_tied(generator):
    model = filled(Tied(), generator)
    masking.attach(model, {"one": torch.rand(4, 4, generator=generator) < 0.5})
    return model


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("kind", ["dense", "masked", "meta"])
def test_tied_tensors_stay_tied_and_masked_however_they_are_loaded(kind, assign, generator):
    source = sparse_tied(generator)
    mask = masking.masks_of(source)["one"]
    if kind == "meta":
        if not assign:
            return
        with torch.device("meta"):
            model = Tied()
    else:
        model = filled(Tied(), generator) if kind == "dense" else sparse_tied(generator)
    masking.load_sparse(model, source.state_dict(), assign=assign)
    assert leaf(model.one, "weight") is leaf(model.two, "weight")
    assert model.one.weight_mask is model.two.weight_mask
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(x_of(generator, 3, 4)).square().sum().backward()
        optimizer.step()
    for weight in (model.one.weight, model.two.weight):
        assert weight[~mask].count_nonzero() == 0
        assert weight[mask].count_nonzero() == mask.sum()


def test_the_masks_of_tied_tensors_hold_after_torch_assigned_both(generator):
    source, model = sparse_tied(generator), sparse_tied(generator)
    model.load_state_dict(source.state_dict(), assign=True)
    mask = masking.masks_of(source)["one"]
    assert torch.equal(model.one.weight_mask, mask)
    for weight in (model.one.weight, model.two.weight):
        assert torch.equal(weight, source.one.weight)


@pytest.mark.parametrize("strict", [True, False])
def test_safetensors_saves_and_loads_models_with_tied_masked_layers(strict, tmp_path, generator):
    source, model = sparse_tied(generator), sparse_tied(generator)
    safetensors.torch.save_model(source, str(tmp_path / "model.safetensors"))
    safetensors.torch.load_model(model, tmp_path / "model.safetensors", strict=strict)
    assert leaf(model.one, "weight") is leaf(model.two, "weight")
    x = x_of(generator, 3, 4)
    torch.testing.assert_close(model(x), source(x))
    assert torch.equal(model.two.weight_mask, source.one.weight_mask)


def test_safetensors_saves_and_loads_models_that_hold_a_masked_layer_under_two_names(tmp_path, generator):
    source, other = sparse_mlp(generator)[0], sparse_mlp(generator)[0]
    for model in (source, other):
        model.append(model[0])
    safetensors.torch.save_model(source, str(tmp_path / "model.safetensors"))
    assert safetensors.torch.load_model(other, tmp_path / "model.safetensors") == (set(), [])
    assert_same(other.state_dict(), source.state_dict())


@pytest.mark.parametrize("form", ["masked", "compact"])
@pytest.mark.parametrize("into", ["dense", "masked", "compact"])
@pytest.mark.parametrize("stored", [0, 1])
def test_one_name_of_a_tied_tensor_is_enough(stored, into, form, generator):
    def tied():
        model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8), nn.Linear(8, 8))
        model[2].weight = model[0].weight
        return filled(model.append(model[3]).append(model[1]), generator).eval()

    def sparse(form):
        model = tied()
        orthosparse.sparsify(model, 0.5, seed=0)
        if form == "compact":
            assert orthosparse.compact(model).exchanged == {"3": "entries"}
        return model

    source, model = sparse(form), tied() if into == "dense" else sparse(into)
    twice = [("0.weight", "2.weight"), *((f"3.{key}", f"4.{key}") for key in source[3].state_dict())]
    twice += [(f"1.{key}", f"5.{key}") for key in source[1].state_dict()]
    state = source.state_dict()
    for names in twice:
        del state[names[1 - stored]]
    if stored:
        del state["0.weight_mask"]
    masking.load_sparse(model, state)
    assert leaf(model[0], "weight") is leaf(model[2], "weight")
    x = x_of(generator, 3, 8)
    torch.testing.assert_close(model(x), source(x))


def test_a_tensor_that_is_not_tied_is_missing_under_its_name(generator):
    state = sparse_tied(generator).state_dict()
    del state["two.weight"]
    model = filled(Tied(), generator)
    model.two.weight = nn.Parameter(model.two.weight.detach().clone())
    with pytest.raises(RuntimeError, match=r'Missing key.*"two.weight"'):
        masking.load_sparse(model, state)


def test_a_moving_average_of_the_weights_is_loaded_without_its_wrapper():
    model = nn.Sequential(nn.Linear(4, 4))
    orthosparse.sparsify(model, 0.5)
    average = torch.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)
    assert "n_averaged" in average.state_dict()
    other = nn.Sequential(nn.Linear(4, 4))
    orthosparse.load_sparse(other, average.state_dict())
    assert torch.equal(other[0].weight, model[0].weight)
    assert torch.equal(orthosparse.masks_of(other)["0"], orthosparse.masks_of(model)["0"])


class Around(nn.Module):
    """A model whose only part has the name that DistributedDataParallel gives to its own."""

    def __init__(self, depth=1):
        super().__init__()
        self.module = nn.Linear(4, 3) if depth == 1 else Around(depth - 1)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_model_with_a_part_called_module_keeps_its_keys(generator, depth, wrapped):
    source, model = filled(Around(depth), generator), Around(depth)
    name = ".".join(["module"] * depth)
    masking.attach(source, {name: torch.rand(3, 4, generator=generator) < 0.5})
    state = source.state_dict()
    orthosparse.load_sparse(model, {f"module.{key}": value for key, value in state.items()} if wrapped else state)
    assert_same(state, model.state_dict())


def test_a_moving_average_loads_its_own_state(generator):
    model = torch.optim.swa_utils.AveragedModel(sparse_mlp(generator)[0])
    other = torch.optim.swa_utils.AveragedModel(mlp(generator))
    orthosparse.load_sparse(other, model.state_dict())
    assert_same(other.state_dict(), model.state_dict())
