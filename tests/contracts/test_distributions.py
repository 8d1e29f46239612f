"""One set of laws over every distribution and every tiny model."""

import inspect

import pytest
import torch
from torch import nn

from contracts.defaults import other_defaults
from contracts.models import MODELS
from contracts.states import assert_same
from contracts.traces import differences, prepared, trace_of
from orthosparse.counts import count_of
from orthosparse.distributions import DISTRIBUTIONS
from orthosparse.layers import find_layers
from orthosparse.masks import counts_of

# Enough rounds to go through every line; their number is nobody's law.
OPTIONS = {"synflow": {"rounds": 7}, "snip_iterative": {"rounds": 4}}
NEED_DATA = ["grasp", "snip", "snip_iterative"]
DRAWN = ["dense_ends", "er", "erk", "uniform"]
COINS = ["erk", "uniform"]
PAIRS = [(name, model) for name in DISTRIBUTIONS for model in MODELS if name != "synflow" or MODELS[model].homogeneous]
every_pair = pytest.mark.parametrize(("name", "model_name"), PAIRS)
every_distribution = pytest.mark.parametrize("name", DISTRIBUTIONS)


def call(name, model_name, density, *, model=None, seed=0, **arguments):
    model = MODELS[model_name].make() if model is None else model
    arguments = {"batch": MODELS[model_name].batch(), **OPTIONS.get(name, {}), **arguments}
    return DISTRIBUTIONS[name](model, density, generator=torch.Generator().manual_seed(seed), **arguments)


def budget(name, masks, density):
    """The count that was asked for: of all weights, except that `dense_ends` leaves its ends out of the density."""
    numel = sum(mask.numel() for mask in masks.values())
    if name != "dense_ends":
        return count_of(density, numel)
    first = "lstm.weight_ih_l0" if "lstm.weight_ih_l0" in masks else next(iter(masks))
    ends = masks[first].numel() + masks[[*masks][-1]].numel()
    return ends + count_of(density, numel - ends)


@every_pair
@pytest.mark.parametrize("density", [0, 0.003, 0.13, 0.5, 1.0])
def test_masks_hold_exactly_the_count_that_was_asked_for(name, model_name, density):
    masks = call(name, model_name, density)
    assert sum(counts_of(masks).values()) == budget(name, masks, density)


@every_pair
def test_masks_are_bools_of_the_shape_and_on_the_device_of_their_layers(name, model_name):
    model = MODELS[model_name].make()
    layers = find_layers(model)
    masks = call(name, model_name, 0.3, model=model)
    assert [*masks] == [*layers]
    for key, mask in masks.items():
        parameter = layers[key].parameter()
        assert (mask.dtype, mask.shape, mask.device) == (torch.bool, parameter.shape, parameter.device)
        assert mask.untyped_storage().nbytes() == mask.numel()  # memory of its own, as checkpoints want it


@every_pair
@pytest.mark.parametrize("model_is_in", ["mixed", "eval"])
def test_a_distribution_leaves_no_trace(name, model_name, model_is_in):
    model = prepared(MODELS[model_name].make())
    if model_is_in == "eval":
        model.eval()
    batch = MODELS[model_name].batch()
    before, data = trace_of(model), [tensor.clone() for tensor in batch]
    call(name, model_name, 0.3, model=model, batch=[batch, batch])
    assert differences(before, trace_of(model)) == []
    assert all(map(torch.equal, data, batch))


@pytest.mark.parametrize("name", NEED_DATA)
def test_every_pass_reads_the_batch_as_it_was_given_though_the_model_changes_it_in_place(name):
    class Centering(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = MODELS["mlp"].make()

        def forward(self, x):
            return self.inner(x.sub_(3))

    x, y = MODELS["mlp"].batch()
    masks = call(name, "mlp", 0.3, model=Centering(), batch=(given := x.clone(), y))
    assert torch.equal(given, x)
    expected = call(name, "mlp", 0.3, batch=(x - 3, y))
    assert all(torch.equal(masks[f"inner.{key}"], mask) for key, mask in expected.items())


@pytest.mark.parametrize(("name", "model_name"), [pair for pair in PAIRS if pair[0] in NEED_DATA])
def test_a_distribution_that_fails_midway_leaves_no_trace(name, model_name):
    model = prepared(MODELS[model_name].make())
    x, y = MODELS[model_name].batch()
    before = trace_of(model)
    calls = []

    def failing(outputs, targets):
        calls.append(None)
        if len(calls) == 2:
            raise KeyError("loss")
        return nn.functional.cross_entropy(outputs, targets)

    with pytest.raises(KeyError):
        call(name, model_name, 0.3, model=model, batch=[(x, y)] * 3, loss=failing)
    assert len(calls) == 2
    assert differences(before, trace_of(model)) == []


@every_pair
def test_the_seed_decides_and_the_global_generators_do_not(name, model_name):
    first = call(name, model_name, 0.3, seed=5)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1234)
        second = call(name, model_name, 0.3, seed=5)
    assert_same(first, second)
    if name in DRAWN:
        other = call(name, model_name, 0.3, seed=6)
        assert not all(torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", DRAWN)
def test_without_a_generator_every_call_draws_anew(name):
    one, two = (DISTRIBUTIONS[name](MODELS["mlp"].make(), 0.5) for _ in range(2))
    assert not all(torch.equal(one[key], two[key]) for key in one)


@every_pair
def test_only_the_layers_that_are_given_share_the_budget(name, model_name):
    model = MODELS[model_name].make()
    layers = find_layers(model)
    some = {key: layers[key] for key in [*layers][:3]}
    masks = call(name, model_name, 0.4, model=model, layers=some)
    assert [*masks] == [*some]
    assert sum(counts_of(masks).values()) == budget(name, masks, 0.4)


@every_pair
def test_a_distribution_works_where_gradients_are_off(name, model_name):
    with torch.no_grad():
        masks = call(name, model_name, 0.3)
    expected = call(name, model_name, 0.3)
    assert_same(masks, expected)


@every_pair
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_distribution_works_in_double_and_in_half_precision(name, model_name, dtype):
    x, y = MODELS[model_name].batch()
    masks = call(name, model_name, 0.3, model=MODELS[model_name].make().to(dtype), batch=(x.to(dtype), y))
    assert sum(counts_of(masks).values()) == budget(name, masks, 0.3)


@pytest.mark.parametrize("model_name", [name for name, tiny in MODELS.items() if not tiny.homogeneous])
def test_synflow_refuses_what_it_cannot_serve_and_leaves_no_trace(model_name):
    model = prepared(MODELS[model_name].make())
    before = trace_of(model)
    with pytest.raises(ValueError, match=r"model: synflow needs twice the output .* module '[a-z0-9.]+' is a "):
        call("synflow", model_name, 0.3, model=model)
    assert differences(before, trace_of(model)) == []


@pytest.mark.parametrize("name", COINS)
def test_coins_of_the_released_code_miss_the_count_but_not_by_much(name):
    counts = {sum(counts_of(call(name, "mlp", 0.3, seed=seed, compat="paper-code")).values()) for seed in range(20)}
    assert len(counts) > 5
    assert all(abs(count - 197) < 60 for count in counts)  # a binomial's standard deviation is below 12 here


@pytest.mark.parametrize(
    "name", [name for name, f in DISTRIBUTIONS.items() if "compat" in inspect.signature(f).parameters]
)
def test_an_unknown_compat_is_refused(name):
    with pytest.raises(ValueError, match="compat: expected None or 'paper-code'; got 'paper'"):
        call(name, "mlp", 0.3, compat="paper")


@every_distribution
def test_members_share_one_signature(name):
    parameters = inspect.signature(DISTRIBUTIONS[name]).parameters
    assert DISTRIBUTIONS[name].__name__ == name
    assert [*parameters][:6] == ["model", "density", "layers", "batch", "loss", "generator"]
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in [*parameters.values()][2:])


@every_distribution
@pytest.mark.parametrize(
    ("density", "error"), [(1.5, ValueError), (-0.1, ValueError), (float("nan"), ValueError), ("0.1", TypeError)]
)
def test_a_bad_density_is_refused(name, density, error):
    with pytest.raises(error, match="density: expected a number in"):
        call(name, "mlp", density)


@every_distribution
def test_a_model_with_nothing_to_sparsify_is_refused(name):
    with pytest.raises(ValueError, match="model: expected at least one layer"):
        call(name, "mlp", 0.5, model=nn.LayerNorm(3))


@every_pair
@pytest.mark.parametrize("compat", [None, "paper-code"])
def test_a_default_device_and_dtype_do_not_matter(name, model_name, compat):
    options = {} if compat is None else {"compat": compat}
    if options and "compat" not in inspect.signature(DISTRIBUTIONS[name]).parameters:
        return
    model, batch = MODELS[model_name].make(), MODELS[model_name].batch()
    expected = call(name, model_name, 0.3, model=model, batch=batch, **options)
    with other_defaults():
        masks = call(name, model_name, 0.3, model=model, batch=batch, **options)
    assert_same(expected, masks)


@every_distribution
def test_layers_of_another_model_are_refused(name):
    with pytest.raises(ValueError, match="layers: expected layers of this model; '0' belongs"):
        call(name, "mlp", 0.5, layers=find_layers(MODELS["mlp"].make()))


@pytest.mark.parametrize("name", [*NEED_DATA, "synflow"])
def test_data_are_asked_for_by_name(name):
    with pytest.raises(ValueError, match=rf"batch: {name} (needs|looks) .* got (None|neither)"):
        call(name, "mlp", 0.5, batch=None)


@pytest.mark.parametrize("name", [*NEED_DATA, "synflow"])
@pytest.mark.parametrize("model_name", ["mlp", "cnn"])
def test_a_batch_of_another_shape_is_named_and_leaves_no_trace(name, model_name):
    model = prepared(MODELS[model_name].make())
    before = trace_of(model)
    x, y = torch.zeros(4, 7, 3, 3), torch.zeros(4, dtype=torch.long)
    with pytest.raises(ValueError, match=r"batch: the model cannot take inputs of shape \(\d, 7, 3, 3\)") as caught:
        call(name, model_name, 0.5, model=model, batch=(x, y))
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert differences(before, trace_of(model)) == []


@pytest.mark.parametrize("name", [*NEED_DATA, "synflow"])
def test_a_batch_on_another_device_is_named(name):
    x, y = MODELS["mlp"].batch()
    with pytest.raises(ValueError, match="batch: expected tensors on cpu, where the model is; got one on meta"):
        call(name, "mlp", 0.5, batch=(x.to("meta"), y))


@pytest.mark.parametrize("name", [*NEED_DATA, "synflow", "magnitude"])
def test_weights_that_are_not_finite_are_named(name):
    model = MODELS["mlp"].make()
    with torch.no_grad():
        model[2].weight[1, 1] = torch.nan
    with pytest.raises(ValueError, match="model: expected finite weights; layer '2' has NaN or infinite ones"):
        call(name, "mlp", 0.5, model=model)


@pytest.mark.parametrize("name", NEED_DATA)
def test_a_loss_that_is_not_finite_is_named_and_leaves_no_trace(name):
    model = prepared(MODELS["batch_norm"].make())
    before = trace_of(model)
    (x, y), bad = MODELS["batch_norm"].batch(), torch.full((8, 3, 8, 8), torch.inf)
    with pytest.raises(ValueError, match="loss: expected a finite number; got nan on batch 1"):
        call(name, "batch_norm", 0.5, model=model, batch=[(x, y), (bad, y)])
    assert differences(before, trace_of(model)) == []


@pytest.mark.gpu
@every_pair
def test_the_laws_hold_on_a_gpu(name, model_name):
    model = prepared(MODELS[model_name].make().cuda())
    batch = [tuple(tensor.cuda() for tensor in MODELS[model_name].batch())] * 2
    before = trace_of(model)
    masks = call(name, model_name, 0.3, model=model, batch=batch)
    assert differences(before, trace_of(model)) == []
    assert sum(counts_of(masks).values()) == budget(name, masks, 0.3)
    assert {mask.device.type for mask in masks.values()} == {"cuda"}
    if name in DRAWN:  # scores are rounded in another order there, so that their masks may differ in an entry
        there = call(name, model_name, 0.3)
        assert all(torch.equal(masks[key].cpu(), there[key]) for key in masks)


SCORED = [(name, model, {}) for name, model in PAIRS if name not in DRAWN]
SCORED += [("grasp", model, {"compat": "paper-code"}) for model in MODELS]


@pytest.mark.parametrize(("name", "model_name", "options"), SCORED)
def test_scores_tell_the_kept_from_the_dropped(name, model_name, options):
    masks = call(name, model_name, 0.3, **options)
    assert [*masks.scores] == [*masks]
    kept = torch.cat([masks.scores[key][mask] for key, mask in masks.items()])
    dropped = torch.cat([masks.scores[key][~mask] for key, mask in masks.items()])
    assert kept.min() >= dropped.max()


@pytest.mark.parametrize("name", DRAWN)
def test_random_masks_have_no_scores(name):
    assert not hasattr(call(name, "mlp", 0.3), "scores")
