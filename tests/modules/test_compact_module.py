"""What modules of active weights have in common."""

import copy
import io

import pytest
import torch
from safetensors.torch import load, save
from torch.autograd import forward_ad
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from contracts.states import assert_same
from modules.conftest import KINDS, filled, inputs_of
from orthosparse.modules.compact_module import follow

F64 = {"dtype": torch.float64}


def dense_result(layer, x, weight=None):
    weight = layer.weight if weight is None else weight
    if hasattr(layer, "stride"):
        names = ("padding", "dilation", "groups")
        options = {name: getattr(layer, name) for name in names if hasattr(layer, name)}
        return functional.conv2d(x, weight, layer.bias, stride=layer.stride, **options)
    return functional.linear(x, weight, layer.bias)


def test_a_module_computes_what_the_dense_layer_with_its_weight_does(kind, generator):
    layer = filled(kind, generator, **F64)
    x = inputs_of(layer, generator).requires_grad_()
    y, expected = layer(x), dense_result(layer, x)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    leaves = [x, layer.values, layer.bias]
    found, right = (torch.autograd.grad(out.sin().sum(), leaves) for out in (y, expected))
    torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("batched", [True, False])
def test_the_result_may_be_changed_in_place_by_the_next_module(kind, batched, generator):
    layer = filled(kind, generator)
    x = inputs_of(layer, generator)
    x = (x if batched else x[0]).requires_grad_()
    found, expected = (functional.relu(layer(x), inplace=inplace) for inplace in (True, False))
    assert torch.equal(found, expected)
    found, expected = (torch.autograd.grad(y.sin().sum(), [x, layer.values]) for y in (found, expected))
    assert all(map(torch.equal, found, expected))


def test_the_weight_is_zero_off_the_mask_and_cannot_be_assigned(kind, generator):
    layer = filled(kind, generator)
    assert layer.weight.shape == layer.weight_mask.shape
    assert torch.equal(layer.weight != 0, layer.weight_mask)
    assert int(layer.weight_mask.sum()) == layer.values.numel()
    assert torch.equal(layer.gather(layer.weight), layer.values)
    with pytest.raises(AttributeError):
        layer.weight = layer.weight.detach()


def test_a_model_reads_the_same_sizes_of_a_module_as_of_the_plain_layer(kind, generator):
    module = filled(kind, generator)
    plain = module.plain()
    sizes = {name: getattr(plain, name) for name in plain.__constants__ if name != "output_padding"}
    assert {name: getattr(module, name, None) for name in sizes} == sizes


def test_parameters_are_of_the_size_of_the_active_weights(kind):
    layer = filled(kind, torch.Generator().manual_seed(1), bias=False)
    assert [name for name, _ in layer.named_parameters()] == ["values"]
    assert layer.values.dim() >= 2, "groups for weight decay go by the number of dimensions"


def test_state_keys_are_fixed_and_a_strict_state_dict_brings_values_and_places(kind, generator):
    layer, other = filled(kind, generator), filled(kind, generator)
    state = layer.state_dict()
    assert sorted(state) == ["bias", "columns", "row_starts", "values"]
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    for loaded in (torch.load(buffer, weights_only=True), load(save(state))):
        other.load_state_dict(loaded)
        x = inputs_of(layer, generator)
        assert torch.equal(other(x), layer(x))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int64], ids=str)
@pytest.mark.parametrize("assign", [False, True])
def test_places_may_come_as_any_integers(kind, dtype, assign, generator):
    layer, other = filled(kind, generator), filled(kind, generator)
    largest = max(int(layer.row_starts.max()), int(layer.columns.max()))
    wide = dtype if largest <= torch.iinfo(dtype).max else torch.int64
    state = {key: value if value.is_floating_point() else value.to(wide) for key, value in layer.state_dict().items()}
    other.load_state_dict(state, assign=assign)
    assert {other.row_starts.dtype, other.columns.dtype} == {torch.int32}
    x = inputs_of(layer, generator)
    assert torch.equal(other(x), layer(x))


def test_a_state_dict_can_be_assigned_to_a_module_on_the_meta_device(kind, generator):
    layer = filled(kind, generator)
    empty = KINDS[kind](device="meta")
    empty.load_state_dict(layer.state_dict(), assign=True)
    x = inputs_of(layer, generator)
    assert torch.equal(empty(x), layer(x))
    stored = KINDS[kind](device="meta").to_empty(device="cpu")
    stored.load_state_dict(layer.state_dict())
    assert torch.equal(stored(x), layer(x))


def test_memory_without_content_keeps_the_units(kind, generator):
    layer = filled(kind, generator)
    before, tables = layer.indices().clone(), [buffer.clone() for buffer in layer.buffers()]
    layer._apply(lambda tensor: torch.full_like(tensor, 10**9))  # as `to_empty` may
    assert torch.equal(layer.indices(), before)
    assert all(map(torch.equal, layer.buffers(), tables))


def test_units_that_were_lost_on_the_meta_device_are_those_of_a_new_module(kind, generator):
    layer, new = filled(kind, generator).to("meta"), KINDS[kind]()
    layer._apply(lambda tensor: torch.full_like(tensor, 10**9, device="cpu"))  # as `to_empty` may
    assert all(map(torch.equal, layer.buffers(), new.buffers()))
    assert layer(inputs_of(new, generator)).shape == new(inputs_of(new, generator)).shape


@pytest.mark.parametrize("spoil", ["columns", "row_starts", "length", "one"])
def test_a_state_of_impossible_places_is_refused_and_nothing_loaded(kind, spoil, generator):
    layer, other = filled(kind, generator), filled(kind, generator)
    before, state = copy.deepcopy(other.state_dict()), dict(layer.state_dict())
    if spoil == "columns":
        state["columns"] = state["columns"] + 1000
    elif spoil == "row_starts":
        state["row_starts"] = state["row_starts"].flip(0)
    elif spoil == "length":
        state["columns"] = state["columns"][:-1]
    else:
        del state["columns"]
    with pytest.raises(RuntimeError, match="row_starts"):
        other.load_state_dict(state)
    assert_same(before, other.state_dict())


@pytest.mark.parametrize("kind", ["block convolution", "entry convolution"])
def test_pictures_stay_channels_last_and_are_of_a_layout_that_torch_knows(kind, generator):
    layer = filled(kind, generator)
    x = inputs_of(layer, generator)
    channels_last = layer(x.contiguous(memory_format=torch.channels_last))
    assert channels_last.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(layer(x), channels_last)
    assert layer(x).is_contiguous() or layer(x).is_contiguous(memory_format=torch.channels_last)


def test_copies_are_independent(kind, generator):
    layer = filled(kind, generator)
    x = inputs_of(layer, generator)
    expected, twin = layer(x), copy.deepcopy(layer)
    with torch.no_grad():
        layer.values.zero_()
    layer.move(torch.arange(layer.units))
    assert torch.equal(twin(x), expected)


def test_units_move_in_place_and_values_follow(kind, generator):
    layer = filled(kind, generator)
    before, pointers = layer.weight.detach(), [buffer.data_ptr() for buffer in layer.buffers()]
    room = layer.grid[0] * layer.grid[1]
    new = torch.randperm(room, generator=generator)[: layer.units].sort().values
    stay = torch.isin(new, layer.indices())
    source = layer.move(new)
    assert torch.equal(source >= 0, stay)
    follow(layer.values, source)
    assert torch.equal(layer.weight, torch.where(layer.weight_mask, before, 0))
    assert [buffer.data_ptr() for buffer in layer.buffers()] == pointers
    x = inputs_of(layer, generator)
    torch.testing.assert_close(layer(x), dense_result(layer, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("indices", [[0, 0], [3, 2], [-1, 0], [0, 10_000]], ids=str)
def test_impossible_moves_are_refused(kind, indices, generator):
    layer = filled(kind, generator)
    before = layer.indices()
    wrong = torch.arange(layer.units)
    wrong[-2:] = torch.tensor(indices)
    for given in (wrong, torch.arange(layer.units + 1)):
        with pytest.raises(ValueError, match="indices: expected"):
            layer.move(given)
    assert torch.equal(layer.indices(), before)


def test_conversions_keep_places_integer(kind, generator):
    layer = filled(kind, generator)
    expected = layer.weight.detach().double()
    layer.type(torch.float64)
    assert layer.columns.dtype == torch.int32
    assert torch.equal(layer.double().weight, expected)


def test_a_compiled_module_is_one_graph_and_gives_the_same(kind, generator):
    layer = filled(kind, generator)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        x = inputs_of(layer, generator).requires_grad_()
        found = torch.autograd.grad(compiled(x).sin().sum(), [x, layer.values])
        expected = torch.autograd.grad(layer(x).sin().sum(), [x, layer.values])
        torch.testing.assert_close(found, expected)
    layer.move(torch.arange(layer.units))
    torch.testing.assert_close(compiled(x), layer(x))


def test_buffers_may_be_written_between_the_passes_as_by_ddp(kind, generator):
    layer = filled(kind, generator)
    x = inputs_of(layer, generator).requires_grad_()
    y, expected = layer(x), dense_result(layer, x)
    for buffer in layer.buffers():
        buffer.copy_(buffer.clone())
    found, right = (torch.autograd.grad(out.sum(), [x, layer.values]) for out in (y, expected))
    torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)


@pytest.mark.stack("export", "compact")
def test_an_exported_module_gives_the_same(kind, generator):
    layer = filled(kind, generator).eval()
    x = inputs_of(layer, generator)
    program = torch.export.export(layer, (x,), dynamic_shapes={"input": {0: torch.export.Dim("batch")}})
    torch.testing.assert_close(program.module()(x[:2]), layer(x[:2]))


def test_gradient_checkpointing_gives_the_same(kind, generator):
    layer = filled(kind, generator)
    x = inputs_of(layer, generator).requires_grad_()
    found = torch.autograd.grad(checkpoint(layer, x, use_reentrant=False).sin().sum(), [x, layer.values])
    expected = torch.autograd.grad(layer(x).sin().sum(), [x, layer.values])
    torch.testing.assert_close(found, expected)


def test_forward_mode_gives_the_tangents_of_the_dense_layer(kind, generator):
    layer = filled(kind, generator, **F64)
    x, tangent = inputs_of(layer, generator), inputs_of(layer, generator)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, tangent)
        found, expected = (forward_ad.unpack_dual(y).tangent for y in (layer(dual), dense_result(layer, dual)))
    torch.testing.assert_close(found, expected)


def test_transforms_of_torch_func_give_what_autograd_does(kind, generator):
    layer = filled(kind, generator, **F64)
    x = inputs_of(layer, generator)

    def one(z):
        return layer(z[None])[0].flatten()

    expected = torch.stack([torch.autograd.functional.jacobian(one, z) for z in x])
    torch.testing.assert_close(torch.vmap(torch.func.jacrev(one))(x), expected)
    torch.testing.assert_close(torch.func.jacfwd(one)(x[0]), expected[0])
    torch.testing.assert_close(torch.vmap(layer)(x), layer(x))

    def loss(parameters, z):
        return torch.func.functional_call(layer, parameters, z[None]).sin().sum()

    found = torch.vmap(torch.func.grad(loss), (None, 0))(dict(layer.named_parameters()), x)["values"]
    each = [torch.autograd.grad(layer(z[None]).sin().sum(), layer.values)[0] for z in x]
    torch.testing.assert_close(found, torch.stack(each))


def test_flops_are_those_of_the_active_weights(kind, generator):
    layer = filled(kind, generator)
    x = inputs_of(layer, generator)
    with FlopCounterMode(display=False) as counter:
        y = layer(x)
    assert counter.get_total_flops() == 2 * layer.values.numel() * (y.numel() // layer.out_features)


def test_shapes_are_inferred_on_the_meta_device(kind, generator):
    layer = filled(kind, generator)
    x = inputs_of(layer, generator)
    expected = layer(x)
    layer.to("meta")
    found = layer(x.to("meta").requires_grad_())
    assert (found.shape, found.dtype, found.device.type) == (expected.shape, expected.dtype, "meta")
    found.sum().backward()
    assert layer.values.grad.shape == layer.values.shape


@pytest.mark.parametrize("bad", ["features", "type"])
def test_inputs_that_do_not_fit_are_refused(kind, bad, generator):
    layer = filled(kind, generator)
    x = inputs_of(layer, generator)
    x, error = (x[:, :-1], ValueError) if bad == "features" else (x.double(), TypeError)
    with pytest.raises(error, match="x: expected"):
        layer(x)
