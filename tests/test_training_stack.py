"""A real training stack around masks: {optimizers} x {eager, compile, DDP, FSDP2, autocast, EMA, accumulation}.

The yardstick is a dense model that knows nothing of this library: zeros are written into its weights, and its
gradients are multiplied by the masks by hand before each step.
"""

import contextlib
import copy

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.checkpoint import checkpoint

from contracts.ranks import on_two_ranks, same_on_all
from contracts.states import assert_same, state_of, whole_state_of
from orthosparse import masking
from orthosparse.layers import leaf

STEPS = 5
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.1, amsgrad=True),
}
MASKED = ("0", "3", "5")
# Sums in another order: a few units in the last place a step, and Adam divides by small numbers.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def dense(seed=0):
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(36, 8), nn.Tanh(), nn.Linear(8, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 3)
    return model


def some_masks(seed=1):
    generator = torch.Generator().manual_seed(seed)
    model = dense()
    return {name: torch.rand(model.get_submodule(name).weight.shape, generator=generator) < 0.3 for name in MASKED}


def sparse(seed=0):
    model = dense(seed)
    masking.attach(model, some_masks())
    return model


def batches(number=STEPS, size=8):
    generator = torch.Generator().manual_seed(2)
    for _ in range(number):
        yield torch.randn(size, 1, 5, 5, generator=generator), torch.randn(size, 3, generator=generator)


def train(model, optimizer, *, context=contextlib.nullcontext, pieces=1, part=None, after=lambda: None, number=STEPS):
    """`pieces`: accumulate over that many micro-batches; `part`: train on that slice of each batch."""
    for x, y in batches(number):
        optimizer.zero_grad()
        for piece in zip(x.chunk(pieces), y.chunk(pieces), strict=True):
            one, other = (piece[0], piece[1]) if part is None else (piece[0][part], piece[1][part])
            with context():
                loss = (model(one) - other).square().mean() / pieces
            loss.backward()
        after()
        optimizer.step()


def by_hand(name, **how):
    """Weights after the same training of the dense model, its gradients masked by hand."""
    model, masks = dense(), some_masks()
    weights = {name: model.get_submodule(name).weight for name in masks}
    with torch.no_grad():
        for layer, weight in weights.items():
            weight.mul_(masks[layer])

    def mask_gradients():
        for layer, weight in weights.items():
            weight.grad.mul_(masks[layer])

    train(model, OPTIMIZERS[name](model.parameters()), after=mask_gradients, **how)
    return model.state_dict()


def assert_zero_off_masks(model, state=None):
    state = model.state_dict() if state is None else state
    for name, mask in some_masks().items():
        assert torch.equal(state[f"{name}.weight_mask"], mask)
        assert state[f"{name}.weight"][~mask].count_nonzero() == 0
        assert state[f"{name}.weight"][mask].count_nonzero() == mask.sum()


def assert_leaves_zero(model):
    """In the parameters themselves, before a state dict could tidy them."""
    for name, mask in some_masks().items():
        assert leaf(model.get_submodule(name), "weight")[~mask].count_nonzero() == 0


def assert_weights(state, expected, **tolerance):
    for name, value in expected.items():
        torch.testing.assert_close(state[name], value, **(tolerance or {"rtol": 0, "atol": 0}))


# One process


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("built", ["before", "after"])
def test_eager_training_is_that_of_a_dense_model_with_masked_gradients(name, built):
    model = dense()
    if built == "before":
        optimizer = OPTIMIZERS[name](model.parameters())
        masking.attach(model, some_masks())
    else:
        masking.attach(model, some_masks())
        optimizer = OPTIMIZERS[name](model.parameters())
    train(model, optimizer)
    assert_leaves_zero(model)
    assert_zero_off_masks(model)
    assert_weights(model.state_dict(), by_hand(name), **CLOSE)
    moved = [(a != b).float().mean() for a, b in zip(model.parameters(), sparse().parameters(), strict=True)]
    assert min(moved) > 0


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.stack("AMP", "masked")
def test_autocast_training_is_that_of_a_dense_model_with_masked_gradients(name):
    def context():
        return torch.autocast("cpu", dtype=torch.bfloat16)

    model = sparse()
    train(model, OPTIMIZERS[name](model.parameters()), context=context)
    assert_leaves_zero(model)
    assert_zero_off_masks(model)
    # bfloat16 has 8 bits: what a last bit of the first step becomes in five.
    assert_weights(model.state_dict(), by_hand(name, context=context), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_accumulated_gradients_give_the_weights_of_the_whole_batch(name):
    model = sparse()
    train(model, OPTIMIZERS[name](model.parameters()), pieces=4)
    assert_leaves_zero(model)
    assert_zero_off_masks(model)
    assert_weights(model.state_dict(), by_hand(name), **CLOSE)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.stack("EMA", "masked")
def test_a_deep_copy_trains_alone_and_its_averages_are_those_of_its_weights(name):
    model = sparse()
    before = state_of(model)
    twin = copy.deepcopy(model)
    ema = AveragedModel(twin, multi_avg_fn=get_ema_multi_avg_fn(0.5), use_buffers=True)
    swa = AveragedModel(twin)
    optimizer = OPTIMIZERS[name](twin.parameters())
    seen = []
    for x, y in batches():
        optimizer.zero_grad()
        (twin(x) - y).square().mean().backward()
        optimizer.step()
        ema.update_parameters(twin)
        swa.update_parameters(twin)
        seen.append(twin[3].weight.detach().clone())
    assert_weights(model.state_dict(), before)
    assert_weights(twin.state_dict(), by_hand(name), **CLOSE)
    halves = seen[0]
    for weight in seen[1:]:
        halves = (halves + weight) / 2
    torch.testing.assert_close(ema.module[3].weight, halves)
    torch.testing.assert_close(swa.module[3].weight, torch.stack(seen).mean(0))
    for average in (ema, swa):
        assert_leaves_zero(average.module)
        assert_zero_off_masks(average.module)
        assert "module.3.weight_mask" in average.state_dict()


@pytest.mark.parametrize("how", [None, get_ema_multi_avg_fn(0.5)], ids=["plain", "moving"])
def test_an_average_follows_masks_that_move(how):
    model = sparse()
    average = AveragedModel(model, multi_avg_fn=how)
    average.update_parameters(model)
    new = {name: ~mask for name, mask in some_masks().items()}
    masking.replace_masks(model, new)
    average.update_parameters(model)
    assert torch.equal(masking.masks_of(average.module)["3"], new["3"])
    assert average.state_dict()["module.3.weight"][~new["3"]].count_nonzero() == 0


def test_batch_statistics_of_an_average_are_updated_through_masks(generator):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    masking.attach(model, {"0": torch.eye(4, dtype=torch.bool)})
    average = AveragedModel(model)
    update_bn([torch.randn(8, 4, generator=generator) for _ in range(3)], average)
    assert average.module[1].num_batches_tracked == 3


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo looks there itself
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.stack("compile", "masked")
def test_compiled_training_in_one_graph_is_the_eager_one(backend):
    torch._dynamo.reset()
    model = sparse()
    start = copy.deepcopy(model.state_dict())
    # The inductor's time goes into a C++ compiler: it gets the part without the convolution.
    parts = {"aot_eager": [model], "inductor": [model[:2], model[2:]]}[backend]
    parts[-1] = torch.compile(parts[-1], backend=backend, fullgraph=True)
    compiled = nn.Sequential(*parts)
    for name in OPTIMIZERS:
        model.load_state_dict(start)
        train(compiled, OPTIMIZERS[name](model.parameters()))
        assert_leaves_zero(model)
        assert_zero_off_masks(model)
        assert_weights(model.state_dict(), by_hand(name), **CLOSE)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    x, _ = next(batches(1))
    new = {name: ~mask for name, mask in some_masks().items()}
    masking.replace_masks(model, new)
    model[3].weight = torch.ones(8, 36)
    torch.testing.assert_close(compiled(x), model(x))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs  # masks move without a new graph
    torch._dynamo.reset()


def test_masks_put_on_after_compilation_take_effect():
    torch._dynamo.reset()
    model = dense()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    x, _ = next(batches(1))
    before = compiled(x)
    masking.attach(compiled, some_masks())
    torch.testing.assert_close(compiled(x), sparse()(x))
    assert not torch.allclose(compiled(x), before)
    masking.bake(compiled)
    torch.testing.assert_close(compiled(x), sparse()(x))
    torch._dynamo.reset()


def test_a_resumed_run_gives_the_bits_of_one_that_was_never_stopped(tmp_path):
    model = sparse()
    optimizer = OPTIMIZERS["amsgrad"](model.parameters())
    train(model, optimizer, number=2)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "run.pt")
    train(model, optimizer, number=3)
    saved = torch.load(tmp_path / "run.pt", weights_only=True)
    resumed = dense(seed=5)
    masking.load_sparse(resumed, saved["model"])
    restarted = OPTIMIZERS["amsgrad"](resumed.parameters())
    restarted.load_state_dict(saved["optimizer"])
    train(resumed, restarted, number=3)
    assert_weights(resumed.state_dict(), model.state_dict())


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_activations_give_the_same_gradients(reentrant):
    model, twin = sparse(), sparse()
    x, y = next(batches(1))
    (model(x) - y).square().mean().backward()
    hidden = checkpoint(twin[:3], x.requires_grad_(), use_reentrant=reentrant)
    (checkpoint(twin[3:], hidden, use_reentrant=reentrant) - y).square().mean().backward()
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_a_frozen_layer_stays_frozen():
    model = dense()
    model[3].requires_grad_(False)
    masking.attach(model, some_masks())
    before = model[3].weight.clone()
    train(model, OPTIMIZERS["adamw"]([p for p in model.parameters() if p.requires_grad]))
    assert torch.equal(model[3].weight, before)
    assert leaf(model[3], "weight").grad is None
    assert_zero_off_masks(model)


def test_gradient_scaling_and_clipping_leave_the_zeros():
    model = sparse()
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for x, y in batches():
        optimizer.zero_grad()
        scaler.scale((model(x) - y).square().mean()).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
    assert_leaves_zero(model)
    assert_zero_off_masks(model)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.1, foreach=True),
        lambda p: torch.optim.AdamW(p, lr=0.05, fused=True),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1),
        lambda p: torch.optim.RMSprop(p, lr=0.05, momentum=0.9, centered=True, weight_decay=0.1),
        lambda p: torch.optim.NAdam(p, lr=0.05, weight_decay=0.1),
        lambda p: torch.optim.Adagrad(p, lr=0.05, weight_decay=0.1),
        lambda p: torch.optim.Adadelta(p, weight_decay=0.1),
        lambda p: torch.optim.Adafactor(p, lr=0.05, weight_decay=0.1),
        lambda p: torch.optim.Rprop(p),
    ],
    ids=["foreach", "fused", "nesterov", "rmsprop", "nadam", "adagrad", "adadelta", "adafactor", "rprop"],
)
def test_other_optimizers_leave_the_zeros_too(make):
    model = sparse()
    train(model, make(model.parameters()))
    assert_leaves_zero(model)
    assert_zero_off_masks(model)


@pytest.mark.parametrize(
    "make",
    [lambda p: torch.optim.Muon(p, lr=0.05), lambda p: torch.optim.LBFGS(p, max_iter=2)],
    ids=["muon", "lbfgs"],
)
def test_optimizers_that_mix_entries_cannot_bring_weights_back(make):
    model = sparse()[3:]
    optimizer = make([leaf(model[0], "weight"), leaf(model[2], "weight")])
    generator, mask = torch.Generator().manual_seed(3), some_masks()["3"]
    x, y = torch.randn(8, 36, generator=generator), torch.randn(8, 3, generator=generator)
    before = model[0].weight.detach().clone()

    def closure():
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        return loss

    for _ in range(STEPS):
        optimizer.step(closure)
    assert (model[0].weight[mask] != before[mask]).any()
    assert model[0].weight[~mask].count_nonzero() == 0
    assert model.state_dict()["3.weight"][~mask].count_nonzero() == 0


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_masks_put_on_in_the_middle_of_training_last(name):
    model = dense()
    optimizer = OPTIMIZERS[name](model.parameters())
    train(model, optimizer)
    masking.attach(model, some_masks(), optimizer=optimizer)  # gradients of the last step are still there
    optimizer.step()
    train(model, optimizer)
    assert_leaves_zero(model)
    assert_zero_off_masks(model)


# Two processes


def half(rank):
    return slice(4 * rank, 4 * rank + 4)


def ddp_matrix(rank):
    for name in OPTIMIZERS:
        for order in ("attach, wrap", "wrap, attach"):
            model = dense()
            if order == "attach, wrap":
                masking.attach(model, some_masks())
            wrapped = DistributedDataParallel(model)
            optimizer = OPTIMIZERS[name](wrapped.parameters())
            if order == "wrap, attach":
                masking.attach(wrapped, some_masks())
            train(wrapped, optimizer, part=half(rank))
            assert_leaves_zero(model)
            assert_zero_off_masks(model)
            assert_weights(model.state_dict(), by_hand(name), **CLOSE)
            assert all(same_on_all(parameter.detach()) for parameter in model.parameters())


def ddp_details(rank):
    # Seeded apart: wrapping gives all the first one's masks and weights; so does synchronize, when wrapped before.
    apart, first = some_masks(seed=10 + rank), some_masks(seed=10)
    for order in ("attach, wrap", "wrap, attach"):
        model = dense(seed=20 + rank)
        if order == "attach, wrap":
            masking.attach(model, apart)
            wrapped = DistributedDataParallel(model)
        else:
            wrapped = DistributedDataParallel(model)
            masking.attach(wrapped, apart)
            masking.synchronize(wrapped)
        assert_same(first, masking.masks_of(wrapped))
        assert all(same_on_all(parameter.detach()) for parameter in model.parameters())
        assert all(leaf(model.get_submodule(n), "weight")[~m].count_nonzero() == 0 for n, m in first.items())
        # Two forward passes before one backward pass, though the wrapper writes to the buffers in each.
        x, y = next(batches(1))
        (wrapped(x) * wrapped(-x) - y).square().mean().backward()
        assert all(same_on_all(parameter.grad) for parameter in model.parameters())
        state = wrapped.state_dict()
        assert "module.3.weight_mask" in state
        loaded = dense(seed=30)
        masking.load_sparse(loaded, state)
        torch.testing.assert_close(loaded(x), model(x))


def sharded(order):
    """The sparse model under FSDP2: masks put on before it, after it, or after it has run."""
    from torch.distributed.fsdp import fully_shard

    model = dense()
    if order == "attach, shard":
        masking.attach(model, some_masks())
    fully_shard(model[3])
    fully_shard(model)
    if order == "shard, run, attach":
        with torch.no_grad():
            model(next(batches(1))[0])
    if order != "attach, shard":
        masking.attach(model, some_masks())
    return model


def fsdp_matrix(rank):
    for name in OPTIMIZERS:
        for order in ("attach, shard", "shard, attach", "shard, run, attach"):
            model = sharded(order)
            train(model, OPTIMIZERS[name](model.parameters()), part=half(rank))
            for parameter in model.parameters():
                assert hasattr(parameter, "placements")
            for layer, mask in some_masks().items():
                assert leaf(model.get_submodule(layer), "weight").full_tensor()[~mask].count_nonzero() == 0
                assert leaf(model.get_submodule(layer), "weight").grad.full_tensor()[~mask].count_nonzero() == 0
            state = whole_state_of(model)
            assert_zero_off_masks(model, state)
            assert_weights(state, by_hand(name), **CLOSE)


def fsdp_details(rank):
    from torch.distributed.checkpoint import state_dict as dcp
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    for order in ("attach, shard", "shard, attach"):
        model = sharded(order)
        optimizer = OPTIMIZERS["adamw"](model.parameters())
        train(model, optimizer, part=half(rank), number=2)
        # Seen from outside, in shards: masked all the same.
        masks = some_masks()
        assert model[3].weight.full_tensor()[~masks["3"]].count_nonzero() == 0
        # A checkpoint in shards and one in a piece, the optimizer's too.
        state, pieces = whole_state_of(model), dcp.get_model_state_dict(model)
        pieces = {key: value.clone() for key, value in pieces.items()}
        state_of_optimizer = copy.deepcopy(dcp.get_optimizer_state_dict(model, optimizer))
        train(model, optimizer, part=half(rank), number=1)
        later = whole_state_of(model)
        for saved, options in ((pieces, None), (dict(state), dcp.StateDictOptions(full_state_dict=True))):
            dcp.set_model_state_dict(model, saved, options=options)
            dcp.set_optimizer_state_dict(model, optimizer, copy.deepcopy(state_of_optimizer))
            assert_weights(whole_state_of(model), state)
            train(model, optimizer, part=half(rank), number=1)
            assert_weights(whole_state_of(model), later)
        # A dense checkpoint onto shards; then other masks; then none.
        fresh = dense(seed=7).state_dict()
        dcp.set_model_state_dict(model, dict(fresh), options=dcp.StateDictOptions(full_state_dict=True))
        assert torch.equal(whole_state_of(model)["3.weight"], torch.where(masks["3"], fresh["3.weight"], 0))
        masking.replace_masks(model, {"3": ~masks["3"]}, optimizer=optimizer)
        assert whole_state_of(model)["3.weight"].count_nonzero() == 0
        train(model, optimizer, part=half(rank), number=1)
        assert leaf(model[3], "weight").full_tensor()[masks["3"]].count_nonzero() == 0
        expected = {key: value for key, value in whole_state_of(model).items() if not key.endswith("mask")}
        masking.bake(model)
        assert_weights(whole_state_of(model), expected)
        assert "Parametrized" not in type(model[3]).__name__
        train(model, OPTIMIZERS["sgd"](model.parameters()), part=half(rank), number=1)

    # A sparse checkpoint onto a dense model in shards.
    model = dense(seed=9)
    fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    brought = {key: dcp_like(model, key, value) for key, value in sparse().state_dict().items()}
    masking.load_sparse(model, brought)
    assert_weights(whole_state_of(model), sparse().state_dict())
    train(model, OPTIMIZERS["adamw"](model.parameters()), part=half(rank))
    assert_zero_off_masks(model, whole_state_of(model))
    # Seeded apart: masks become those of the first rank, and the shards follow.
    masking.replace_masks(model, some_masks(seed=40 + rank))
    masking.synchronize(model)
    first = some_masks(seed=40)
    assert_same(first, masking.masks_of(model))
    assert leaf(model[3], "weight").full_tensor()[~first["3"]].count_nonzero() == 0
    # From inside, the module that shards cannot be found.
    inner = dense()
    fully_shard(inner)
    with pytest.raises(ValueError, match="pass the module it was called on"):
        masking.attach(inner[3], {"weight": some_masks()["3"]})
    assert not masking.is_sparsified(inner)


def dcp_like(model, key, value):
    from orthosparse.distributed import shard_like

    return value if key.endswith("mask") else shard_like(value, model.state_dict()[key])


def stack_of_two(rank):
    for work in (ddp_matrix, ddp_details, fsdp_matrix, fsdp_details):
        work(rank)


@pytest.mark.stack("DDP", "masked")
@pytest.mark.stack("FSDP2", "masked")
def test_ddp_and_fsdp2_hold_one_mask_and_train_as_one_process_does(tmp_path):
    on_two_ranks(stack_of_two, tmp_path)
