"""Compact and masked models against each other."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

import orthosparse
from compacting.models import Net, batch_for, masked_net
from contracts.states import assert_same
from orthosparse import BlockConv1x1, BlockLinear, SparseConv, SparseConv1x1, SparseLinear, compact, expand, masks_of
from orthosparse.modules.compact_module import Compact

OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=1e-2, nesterov=True),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.01, weight_decay=1e-2),
    "adagrad": lambda params: torch.optim.Adagrad(params, lr=0.05, initial_accumulator_value=0.1),
    "rmsprop": lambda params: torch.optim.RMSprop(params, lr=0.01, momentum=0.9, centered=True),
}


def train(model, optimizer, data, steps):
    for x, y in data[:steps]:
        optimizer.zero_grad()
        functional.cross_entropy(model.eval()(x), y).backward()
        optimizer.step()


def effective(model):
    """Return the state of a model with its masked or compact layers as plain ones."""
    model = copy.deepcopy(model)
    orthosparse.bake(model)
    return model.state_dict()


@pytest.fixture(params=[None, 16], ids=["entries", "blocks"])
def masked(request, generator):
    return masked_net(generator, block=request.param)


def test_every_layer_with_a_kernel_is_exchanged(masked):
    is_block = masked.fc.weight_mask.view(4, 16, 2, 16).transpose(1, 2).flatten(2).float().mean(2)
    blocks = bool(((is_block == 0) | (is_block == 1)).all())
    table = compact(masked)
    assert isinstance(masked.fc, BlockLinear if blocks else SparseLinear)
    assert isinstance(masked.mix, BlockConv1x1 if blocks else SparseConv1x1)
    assert isinstance(masked.head, SparseLinear)
    assert isinstance(masked.stem, SparseConv)
    assert [row.layer for row in table.rows] == ["stem", "mix", "fc", "head"]
    assert table.rows[0].form == "entries"
    assert "4 of 4 layers" in str(table)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_agrees_with_the_masked_model_and_the_way_back_is_exact(name, masked, generator):
    data = [batch_for(masked, generator) for _ in range(70)]
    twin = copy.deepcopy(masked)
    optimizer, other = OPTIMIZERS[name](masked.parameters()), OPTIMIZERS[name](twin.parameters())
    train(masked, optimizer, data, 10)
    train(twin, other, data, 10)
    compact(twin, optimizer=other)
    train(masked, optimizer, data[10:], 50)
    train(twin, other, data[10:], 50)
    for key, value in effective(masked).items():
        torch.testing.assert_close(effective(twin)[key], value, rtol=1e-10, atol=1e-10)
    before = effective(twin)
    expand(twin, optimizer=other)
    assert_same(before, effective(twin))
    assert {key: value.shape for key, value in twin.state_dict().items()} == {
        key: value.shape for key, value in masked.state_dict().items()
    }
    train(masked, optimizer, data[60:], 10)
    train(twin, other, data[60:], 10)
    for key, value in effective(masked).items():
        torch.testing.assert_close(effective(twin)[key], value, rtol=1e-10, atol=1e-10)


def test_compact_then_expand_changes_nothing(masked):
    before, masks = copy.deepcopy(masked.state_dict()), masks_of(masked)
    compact(masked)
    compact_masks = masks_of(masked)
    expand(masked)
    assert list(masked.state_dict()) == list(before)
    assert_same(before, masked.state_dict())
    assert list(compact_masks) == list(masks)
    assert_same(compact_masks, masks)


def test_parameters_gradients_and_state_are_of_the_size_of_the_active_weights(generator):
    model = masked_net(generator, model=nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 20)))
    active = sum(int(mask.sum()) for mask in masks_of(model).values())
    compact(model)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 40, dtype=torch.float64)).sum().backward()
    optimizer.step()
    assert sum(p.numel() for p in model.parameters()) == active + 50
    assert sum(state["exp_avg"].numel() for state in optimizer.state.values()) == active + 50


def test_biases_modes_hooks_and_frozen_weights_stay(masked):
    bias, seen = masked.fc.bias, []
    masked.fc.parametrizations.weight.original.requires_grad_(False)
    masked.fc.register_forward_hook(lambda module, args, out: seen.append(type(module)))
    masked.fc.eval()
    compact(masked)
    assert masked.fc.bias is bias
    assert not masked.fc.training
    assert masked.training
    assert not masked.fc.values.requires_grad
    masked(torch.zeros(2, 3, 8, 8, dtype=torch.float64))
    assert seen == [type(masked.fc)]


def test_gradients_move_along(masked, generator):
    x, y = batch_for(masked, generator)
    functional.cross_entropy(masked.eval()(x), y).backward()
    before = masked.fc.parametrizations.weight.original.grad.clone()
    compact(masked)
    assert torch.equal(masked.fc.scatter(masked.fc.values.grad), before)
    expand(masked)
    assert torch.equal(masked.fc.parametrizations.weight.original.grad, before)


def test_baking_a_compact_model_gives_plain_layers(masked, generator):
    x, _ = batch_for(masked, generator)
    expected = masked.eval()(x)
    compact(masked)
    optimizer = torch.optim.SGD(masked.parameters(), lr=0.1)
    orthosparse.bake(masked, optimizer=optimizer)
    assert {type(module) for module in masked.modules()} == {type(module) for module in Net().modules()}
    torch.testing.assert_close(masked(x), expected)
    assert {id(p) for p in optimizer.param_groups[0]["params"]} == {id(p) for p in masked.parameters()}


def test_a_measured_choice_keeps_the_faster_form_and_leaves_no_trace(masked, generator):
    x, _ = batch_for(masked, generator)
    before, mode = copy.deepcopy(masked.train().state_dict()), torch.get_rng_state()
    table = compact(masked, x)
    assert torch.equal(torch.get_rng_state(), mode)
    assert masked.training
    assert all(parameter.grad is None for parameter in masked.parameters())
    timed = {row.layer: row for row in table.rows if row.ratio is not None}
    assert set(timed) == {"stem", "mix", "fc", "head"}
    assert all((row.form != "masked") == (row.ratio > 1) for row in timed.values())
    assert all(row.note == "slower" for row in timed.values() if row.form == "masked")
    expand(masked)
    assert_same(before, masked.state_dict())


def test_a_layer_that_the_batch_does_not_reach_stays(generator):
    model = masked_net(generator)
    model.unused = masked_net(generator, model=nn.Sequential(nn.Linear(4, 4)))
    table = compact(model, batch_for(model, generator)[0])
    assert [row.note for row in table.rows if row.layer == "unused.0"] == ["not reached by the batch"]


@pytest.mark.parametrize("kind", ["table", "dict", "state"])
def test_a_choice_is_repeated_without_timing(kind, masked, generator):
    twin, x = copy.deepcopy(masked), batch_for(masked, generator)[0]
    table = compact(masked, x)
    like = {"table": table, "dict": table.to_dict(), "state": masked.state_dict()}[kind]
    assert compact(twin, like=like).exchanged == table.exchanged
    assert {name: type(module) for name, module in twin.named_modules()} == {
        name: type(module) for name, module in masked.named_modules()
    }
    twin.load_state_dict(masked.state_dict())


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_compact_checkpoint_goes_into_a_model_that_was_never_masked(device, masked, generator):
    compact(masked)
    state = {key: value for key, value in masked.state_dict().items() if not key.endswith("weight_mask")}
    with torch.device(device):
        fresh = Net().to(torch.float64)
    compact(fresh, like=state)
    fresh.load_state_dict(state, assign=device == "meta")
    x, _ = batch_for(masked, generator)
    assert torch.equal(fresh.eval()(x), masked.eval()(x))


@pytest.mark.parametrize(
    "wrapper",
    [nn.DataParallel, torch.optim.swa_utils.AveragedModel, lambda model: torch.compile(model, backend="eager")],
)
@pytest.mark.parametrize("was_masked", [True, False])
def test_a_choice_is_repeated_from_the_state_of_a_wrapper(was_masked, wrapper, masked, generator):
    twin = copy.deepcopy(masked) if was_masked else Net().to(torch.float64)
    exchanged = compact(masked).exchanged
    state = wrapper(masked).state_dict()
    assert compact(twin, like=state).exchanged == exchanged
    orthosparse.load_sparse(twin, state)
    x, _ = batch_for(masked, generator)
    assert torch.equal(twin.eval()(x), masked.eval()(x))


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_layer_without_weights_stays():
    model = nn.Sequential(nn.Linear(4, 0), nn.Linear(0, 4))
    masks = {"0": torch.ones(0, 4, dtype=torch.bool), "1": torch.ones(4, 0, dtype=torch.bool)}
    orthosparse.attach(model, masks)
    assert compact(model).exchanged == {}
    assert masks_of(model).keys() == masks.keys()


@pytest.mark.parametrize("kept", ["all", "first", "last"])
@pytest.mark.parametrize("was_masked", [True, False])
def test_a_choice_is_repeated_where_a_module_has_several_names(was_masked, kept, generator):
    def build():
        layer = nn.Linear(16, 16)
        return nn.ModuleDict({"a": layer, "b": layer, "c": nn.Linear(16, 4)})

    model, fresh = build(), build()
    orthosparse.sparsify(model, 0.3, generator=generator)
    if was_masked:
        orthosparse.sparsify(fresh, 0.3, generator=generator)
    exchanged = compact(model).exchanged
    dropped = {"all": "none", "first": "b.", "last": "a."}[kept]
    state = {key: value for key, value in model.state_dict().items() if not key.startswith(dropped)}
    assert [*compact(fresh, like=state).exchanged] == [*exchanged] == ["a", "c"]
    orthosparse.load_sparse(fresh, state)
    assert fresh["a"] is fresh["b"]
    assert torch.equal(fresh["b"].weight, model["a"].weight)


def test_tied_attention_and_recurrent_layers_are_listed_as_they_stay(generator):
    model = nn.ModuleDict(
        {
            "attention": nn.MultiheadAttention(16, 2),
            "lstm": nn.LSTM(4, 4),
            "a": nn.Linear(8, 8),
            "b": nn.Linear(8, 8),
        }
    )
    model["b"].weight = model["a"].weight
    orthosparse.sparsify(model, 0.6, scheme="base", generator=generator)
    with pytest.raises(ValueError, match="like: expected layers that can be exchanged; 'a': tied to 1 more"):
        compact(model, like={"rows": [{"layer": "a", "form": "entries"}]})
    notes = {row.layer: row.note for row in compact(model).rows}
    assert "MultiheadAttention" in notes["attention.in_proj_weight"]
    assert "MultiheadAttention" in notes["attention.out_proj"]
    assert "recurrent" in notes["lstm.weight_ih_l0"]
    assert "tied" in notes["a"]


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(8, 4, 1, groups=2),
        nn.Conv2d(8, 4, 1, padding=1, stride=2),
        nn.Conv1d(8, 6, 4, dilation=2, padding="valid"),
        nn.Conv2d(8, 8, 3, groups=8, padding="same"),
        nn.Conv2d(8, 4, 3, padding=1, padding_mode="circular", bias=False),
        nn.Conv3d(8, 4, (3, 1, 2), stride=(1, 2, 1), padding=(1, 0, 1), padding_mode="replicate"),
    ],
    ids=repr,
)
def test_convolutions_of_all_sorts_come_back_as_they_were(layer, generator):
    model = masked_net(generator, model=nn.Sequential(layer))
    x = torch.randn(2, 8, *[8] * (layer.weight.dim() - 2), generator=generator, dtype=torch.float64)
    twin, before = copy.deepcopy(model), repr(model)
    compact(twin)
    assert isinstance(twin[0], SparseConv)
    torch.testing.assert_close(twin(x), model(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(twin(x[0]), model(x[0]), rtol=1e-12, atol=1e-12)
    expand(twin)
    assert repr(twin) == before
    assert_same(twin.state_dict(), model.state_dict())


def test_wrapped_sharded_and_compiled_models_are_refused(masked):
    for wrapped in (nn.DataParallel(masked), torch.compile(masked)):
        for call in (compact, expand):
            with pytest.raises(ValueError, match="model: expected one before"):
                call(wrapped)
    masked.compile()
    with pytest.raises(ValueError, match=r"torch\.compile"):
        compact(masked)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"batch": 3}, "batch: expected a tensor"),
        ({"like": 3}, "like: expected a table"),
        ({"like": {"rows": [{"layer": "nothing", "form": "entries"}]}}, "like: expected names of layers"),
        ({"like": {"rows": [{"layer": "norm", "form": "entries"}]}}, "like: expected layers that can be exchanged"),
        ({"like": {"rows": [{"layer": "stem", "form": "block:16"}]}}, "like: 'stem': expected single entries"),
        ({"like": {"rows": [{"layer": "fc", "form": "triangles"}]}}, "like: expected forms"),
        ({"like": {"rows": [{"layer": "mix", "form": "block:32"}]}}, "like: 'mix': expected whole blocks of 32"),
        ({"optimizer": 3}, "optimizer: expected a torch"),
    ],
)
def test_bad_arguments_are_refused_and_the_model_unchanged(arguments, error, masked):
    before = list(masked.state_dict())
    with pytest.raises((TypeError, ValueError), match=error):
        compact(masked, **arguments)
    assert list(masked.state_dict()) == before


@pytest.mark.parametrize("exchange", [compact, expand, orthosparse.bake])
@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_on_a_weight_are_refused_since_its_exchange_would_lose_them(register, exchange, masked):
    if exchange is not compact:
        compact(masked)
    weight = next(p for p in masked.fc.parameters() if p is not masked.fc.bias)
    seen = []
    handle = getattr(weight, register)(lambda tensor: seen.append(tensor))
    getattr(masked.fc.bias, register)(lambda tensor: None)  # biases are not exchanged
    before = list(masked.parameters())
    with pytest.raises(ValueError, match=r"model: expected weights without hooks, .*; that of 'fc' has some"):
        exchange(masked)
    assert all(new is old for new, old in zip(masked.parameters(), before, strict=True))
    handle.remove()
    exchange(masked)
    assert all(new is not weight for new in masked.parameters())


@pytest.mark.parametrize("back", [expand, orthosparse.bake])
def test_attributes_of_a_layer_go_with_it(back, masked):
    layers = masked.stem, masked.mix, masked.fc
    for layer in layers:
        layer.group, layer.unit = "slow", "of the user"
    compact(masked)
    assert all(layer.group == "slow" and layer.unit in (1, 16) for layer in (masked.stem, masked.mix, masked.fc))
    masked.fc.group = "fast"
    masked = copy.deepcopy(masked)
    back(masked)
    assert (masked.stem.group, masked.mix.group, masked.fc.group) == ("slow", "slow", "fast")


def test_attributes_of_a_weight_go_with_it(masked):
    def weight():
        return next(p for p in masked.fc.parameters() if p is not masked.fc.bias)

    weight().no_weight_decay = True
    for exchange in (compact, expand, compact, orthosparse.bake):
        exchange(masked)
        assert weight().no_weight_decay


@pytest.mark.parametrize("exchange", [compact, expand, orthosparse.bake])
def test_an_optimizer_that_mixes_weights_is_refused(exchange, masked, generator):
    if exchange is not compact:
        compact(masked)
    optimizer = torch.optim.Adafactor(masked.parameters())
    x, y = batch_for(masked, generator)
    functional.cross_entropy(masked(x), y).backward()
    optimizer.step()
    before = list(masked.parameters())
    with pytest.raises(ValueError, match="optimizer: expected one that holds its state weight by weight"):
        exchange(masked, optimizer=optimizer)
    assert all(new is old for new, old in zip(masked.parameters(), before, strict=True))


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("exchange", [compact, expand, orthosparse.bake])
def test_lbfgs_is_refused_since_it_would_go_on_with_the_old_parameters(exchange, steps, masked, generator):
    if exchange is not compact:
        compact(masked)
    optimizer = torch.optim.LBFGS(masked.parameters(), max_iter=1)
    x, y = batch_for(masked, generator)

    def closure():
        optimizer.zero_grad()
        loss = functional.cross_entropy(masked(x), y)
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    before = list(masked.parameters())
    with pytest.raises(ValueError, match="optimizer: expected one that holds its state weight by weight; got LBFGS"):
        exchange(masked, optimizer=optimizer)
    assert all(new is old for new, old in zip(masked.parameters(), before, strict=True))


@pytest.mark.parametrize("exchange", [compact, expand, orthosparse.bake])
def test_weights_that_another_optimizer_trains_are_refused_since_it_would_lose_them(exchange, masked, generator):
    if exchange is not compact:
        compact(masked)
    x, y = batch_for(masked, generator)
    fc, others = [*masked.fc.parameters()], [p for name, p in masked.named_parameters() if not name.startswith("fc.")]
    first, second = torch.optim.Adam(others), torch.optim.Adam(fc)
    before = list(masked.parameters())
    with pytest.raises(ValueError, match=r"optimizer: expected one that holds every weight .*; it does not hold 'fc'"):
        exchange(masked, optimizer=first)
    assert all(new is old for new, old in zip(masked.parameters(), before, strict=True))
    for parameter in fc:
        parameter.requires_grad_(False)
    exchange(masked, optimizer=first)
    functional.cross_entropy(masked(x), y).backward()
    assert all(p.grad is not None for group in first.param_groups for p in group["params"])
    del second


@pytest.mark.parametrize("exchange", [compact, expand, orthosparse.bake])
@pytest.mark.parametrize("failing", [0, 5, 9])  # at the first layer, at another, at what the optimizer holds
def test_what_fails_at_one_layer_leaves_all_layers_and_the_optimizer_as_they_were(
    failing, exchange, masked, generator, monkeypatch
):
    if exchange is not compact:
        compact(masked)
    optimizer = torch.optim.Adam(masked.parameters())
    train(masked, optimizer, [batch_for(masked, generator)], 1)
    modules, parameters = [*masked.modules()], [*masked.parameters()]
    state, held = copy.deepcopy(masked.state_dict()), copy.deepcopy(optimizer.state_dict())
    done = []

    def fail(reshape):
        def failing_reshape(module, *args, **kwargs):
            done.append(module)
            if len(done) > failing:
                raise MemoryError
            return reshape(module, *args, **kwargs)

        return failing_reshape

    for name in ("gather", "scatter"):
        monkeypatch.setattr(Compact, name, fail(getattr(Compact, name)))
    with pytest.raises(MemoryError):
        exchange(masked, optimizer=optimizer)
    monkeypatch.undo()
    assert all(new is old for new, old in zip(masked.modules(), modules, strict=True))
    assert all(new is old for new, old in zip(masked.parameters(), parameters, strict=True))
    assert all(new is old for new, old in zip(optimizer.param_groups[0]["params"], parameters, strict=True))
    torch.testing.assert_close(masked.state_dict(), state, rtol=0, atol=0)
    torch.testing.assert_close(optimizer.state_dict(), held, rtol=0, atol=0)


@pytest.mark.stack("compile", "compact")
def test_a_compact_model_compiles_whole(masked, generator):
    compact(masked)
    x, _ = batch_for(masked, generator)
    compiled = torch.compile(masked.eval(), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), masked(x))


def test_layers_may_be_called_by_keyword_as_torchs_own(generator):
    class ByKeyword(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix, self.fc = nn.Conv2d(8, 8, 1, stride=2), nn.Linear(8, 8)

        def forward(self, x):
            return self.fc(input=self.mix(input=x).mean((2, 3)))

    model = masked_net(generator, model=ByKeyword())
    x = torch.randn(2, 8, 4, 4, generator=generator, dtype=torch.float64)
    expected = model(x)
    assert all(row.ratio is not None for row in compact(copy.deepcopy(model), x).rows)
    assert set(compact(model).exchanged) == {"mix", "fc"}
    torch.testing.assert_close(model(x), expected)
