"""Laws of every scheme on every tiny model."""

import copy

import pytest
import torch
from torch import nn

from contracts.models import MODELS
from contracts.scores import score_through_stride
from contracts.states import assert_same
from orthosparse.layers import find_layers, leaf
from orthosparse.masks import counts_of, draw
from orthosparse.orthogonality import orthogonality_score
from orthosparse.randomness import draw_seed
from orthosparse.schemes import SCHEMES

OWN = {  # options under which a scheme serves any shape, quickly
    "ai": {"iterations": 100},
    "base": {},
    "eoi": {"depthwise": "shift"},
    "sao": {"degree": "nearest"},
    "scaled": {},
}
ORTHOGONAL = ("eoi", "sao")
FROM_WEIGHTS = ("ai", "base")  # no weight is drawn
everywhere = pytest.mark.parametrize("kind", MODELS)
every_scheme = pytest.mark.parametrize("scheme", SCHEMES)


def masks_for(model, density=0.4, seed=0):
    """Random masks, none below the layer's floor, in exact counts."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: draw(layer.shape, max(layer.floor, round(density * layer.numel)), generator=generator)
        for name, layer in find_layers(model).items()
    }


def filled(scheme, model, masks, seed=0, **options):
    options = {**OWN.get(scheme, {}), **options}
    return SCHEMES[scheme](model, masks, generator=torch.Generator().manual_seed(seed), **options)


def weights_of(model):
    return {name: layer.parameter().detach().clone() for name, layer in find_layers(model).items()}


def biases_of(model):
    return {
        (name, bias): leaf(layer.module, bias).detach().clone()
        for name, layer in find_layers(model).items()
        for bias in layer.biases
    }


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


def matrices_of(layer, tensor):
    return [matrix for stack in layer.matrices(tensor.contiguous()) for matrix in stack]


def loss(matrix, gain=1.0):
    """AI's loss of one [out, in, taps] matrix, in float64."""
    flat = matrix.double().flatten(1)
    gram = flat @ flat.T if flat.shape[0] <= flat.shape[1] else flat.T @ flat
    return float(torch.linalg.norm(gram - gain**2 * torch.eye(len(gram))))


@everywhere
@every_scheme
def test_weights_are_exactly_zero_off_the_returned_masks(scheme, kind):
    model = MODELS[kind].make()
    masks = filled(scheme, model, masks_for(model))
    layers = find_layers(model)
    assert list(masks) == list(layers)
    for name, mask in masks.items():
        weight = layers[name].parameter()
        assert mask.dtype == torch.bool
        assert mask.shape == weight.shape
        assert torch.equal(weight[~mask], torch.zeros_like(weight[~mask]))


@everywhere
@pytest.mark.parametrize("scheme", sorted(SCHEMES.keys() - {"sao"}))
def test_counts_are_those_of_the_given_masks(scheme, kind):
    model = MODELS[kind].make()
    masks = masks_for(model)
    asked = counts_of(masks)
    assert counts_of(filled(scheme, model, masks)) == asked


@everywhere
@pytest.mark.parametrize("gain", [1.0, 1.7])
@pytest.mark.parametrize("scheme", ORTHOGONAL)
def test_every_matrix_is_orthogonal_at_rounding_level(scheme, kind, gain):
    model = MODELS[kind].make().double()
    filled(scheme, model, masks_for(model), gain=gain)
    for layer in find_layers(model).values():
        for matrix in matrices_of(layer, layer.parameter()):
            if scheme == "sao":  # one tap, whatever the stride
                kernel = matrix.unflatten(2, layer.kernel) if layer.kernel else matrix.squeeze(2)
                assert orthogonality_score(kernel, gain=gain) < 1e-13 * max(matrix.shape)
            else:
                assert score_through_stride(layer, matrix, gain=gain) < 1e-13 * max(matrix.shape)


@everywhere
@pytest.mark.parametrize("gain", [1.0, 0.6])
def test_ai_lowers_the_loss_of_every_matrix_that_is_not_at_its_best(kind, gain):
    model = MODELS[kind].make()
    masks = masks_for(model)
    layers, before = find_layers(model), weights_of(model)
    filled("ai", model, masks, gain=gain)
    for name, layer in layers.items():
        starts = matrices_of(layer, before[name] * masks[name])
        for start, end in zip(starts, matrices_of(layer, layer.parameter().detach()), strict=True):
            assert loss(end, gain) <= loss(start, gain) + 1e-6
        total = sum(loss(matrix, gain) for matrix in matrices_of(layer, layer.parameter().detach()))
        assert total < 0.9 * sum(loss(matrix, gain) for matrix in starts)


@everywhere
@every_scheme
def test_nothing_else_of_the_model_changes(scheme, kind):
    model = MODELS[kind].make()
    layers = find_layers(model)
    filled_ones = {id(layer.parameter()) for layer in layers.values()}
    filled_ones |= {id(leaf(layer.module, bias)) for layer in layers.values() for bias in layer.biases}
    parameters = dict(model.named_parameters())
    before = copy.deepcopy(model)
    state = torch.get_rng_state()
    filled(scheme, model, masks_for(model))
    assert torch.equal(torch.get_rng_state(), state)
    assert list(model.state_dict()) == list(before.state_dict())
    assert all(parameter is parameters[name] for name, parameter in model.named_parameters())
    assert all(torch.equal(*pair) for pair in zip(model.buffers(), before.buffers(), strict=True))
    assert [module.training for module in model.modules()] == [module.training for module in before.modules()]
    for name, parameter in before.named_parameters():
        now = parameters[name]
        assert now.grad is None
        assert now.requires_grad
        assert now.stride() == parameter.stride()
        assert id(now) in filled_ones or torch.equal(now, parameter)


@everywhere
@every_scheme
def test_the_same_seed_gives_the_same_bits_and_one_draw_is_taken(scheme, kind):
    first, second = MODELS[kind].make(), MODELS[kind].make()
    masks = masks_for(first)
    generator, reference = (torch.Generator().manual_seed(5) for _ in range(2))
    given = SCHEMES[scheme](first, masks, bias_std=0.1, generator=generator, **OWN.get(scheme, {}))
    draw_seed(reference)
    assert torch.equal(generator.get_state(), reference.get_state())
    assert_same(given, filled(scheme, second, masks, seed=5, bias_std=0.1))
    assert_same(dict(first.named_parameters()), dict(second.named_parameters()))


@everywhere
@every_scheme
def test_another_seed_or_none_gives_other_draws(scheme, kind):
    drawn = []
    for seed in (1, 2, None, None):
        model = MODELS[kind].make()
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        SCHEMES[scheme](model, masks_for(model), bias_std=0.1, generator=generator, **OWN.get(scheme, {}))
        drawn.append(biases_of(model) if scheme in FROM_WEIGHTS else weights_of(model))
    assert not any(same(drawn[i], drawn[j]) for i in range(4) for j in range(i))


@everywhere
@every_scheme
def test_a_layer_does_not_depend_on_the_others(scheme, kind):
    model, other, alone = (MODELS[kind].make() for _ in range(3))
    masks = masks_for(model)
    changed = next(iter(masks))
    fewer = masks | {changed: masks_for(model, density=1.0)[changed]}
    first, second = filled(scheme, model, masks, bias_std=0.1), filled(scheme, other, fewer, bias_std=0.1)
    one = list(masks)[-1]
    only = filled(scheme, alone, {one: masks[one]}, bias_std=0.1)
    for name in masks:
        if name != changed:
            assert torch.equal(first[name], second[name])
            assert torch.equal(weights_of(model)[name], weights_of(other)[name])
    if scheme != "sao" or kind != "cnn":  # its 8 x 3 stem allows no degree but the full one
        assert not torch.equal(weights_of(model)[changed], weights_of(other)[changed])
    assert torch.equal(only[one], first[one])
    assert torch.equal(weights_of(alone)[one], weights_of(model)[one])
    untouched = MODELS[kind].make()
    assert torch.equal(weights_of(alone)[changed], weights_of(untouched)[changed])


@pytest.mark.parametrize("scheme", ORTHOGONAL)
def test_layers_of_one_shape_and_blocks_of_one_layer_get_draws_of_their_own(scheme):
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3), nn.GRU(8, 8))
    filled(scheme, model, masks_for(model))
    gates = [*model[4].weight_ih_l0.chunk(3), *model[4].weight_hh_l0.chunk(3)]
    drawn = [model[0].weight, model[1].weight, *(model[i].weight[:, :, 1, 1] for i in (2, 3)), *gates]
    assert not any(torch.equal(drawn[i], drawn[j]) for i in range(len(drawn)) for j in range(i))


@everywhere
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scheme", ORTHOGONAL)
def test_every_dtype_gets_the_float64_draw_cast_once(scheme, kind, dtype):
    exact, model = MODELS[kind].make().double(), MODELS[kind].make().to(dtype)
    masks = masks_for(model)
    assert_same(filled(scheme, exact, masks, bias_std=0.1), filled(scheme, model, masks, bias_std=0.1))
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    for name, weight in weights_of(exact).items():
        through = weight.to(torch.float32).to(dtype)  # the half types are cast through float32
        assert torch.allclose(weights_of(model)[name], through, rtol=torch.finfo(dtype).eps, atol=0)


@everywhere
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("scheme", FROM_WEIGHTS)
def test_schemes_that_start_from_the_weights_keep_their_dtype(scheme, kind, dtype):
    model = MODELS[kind].make().to(dtype)
    masks, before = masks_for(model), weights_of(model)
    filled(scheme, model, masks)
    for name, layer in find_layers(model).items():
        weight = layer.parameter().detach()
        assert weight.dtype == dtype
        assert bool((weight[~masks[name]] == 0).all())
        starts = matrices_of(layer, before[name] * masks[name])
        for start, end in zip(starts, matrices_of(layer, weight), strict=True):
            # rounding C to bfloat16 moves the loss by at most 2 eps |C|^2 or so
            assert loss(end) <= loss(start) + 3 * torch.finfo(dtype).eps * float(end.double().square().sum())


@everywhere
@every_scheme
def test_biases_are_drawn_with_the_deviation_asked_for(scheme, kind):
    plain, drawn = MODELS[kind].make(), MODELS[kind].make()
    dense = biases_of(plain)
    filled(scheme, plain, masks_for(plain))
    filled(scheme, drawn, masks_for(drawn), bias_std=0.5)
    for key, bias in biases_of(plain).items():
        assert torch.equal(bias, dense[key] if scheme == "base" else torch.zeros_like(bias))
    values = torch.cat([bias.flatten() for bias in biases_of(drawn).values()])
    assert len(values.unique()) == len(values)
    # chi^2: with n = 15 or more the sample deviation of N(0, 0.5) is outside these bounds with probability < 1e-4
    assert 0.15 < float(values.square().mean().sqrt()) < 0.95
    assert_same(weights_of(plain), weights_of(drawn))


@pytest.mark.parametrize("kind", ["cnn", "batch_norm"])
@every_scheme
def test_memory_format_is_kept_and_changes_no_value(scheme, kind):
    model, last = MODELS[kind].make(), MODELS[kind].make().to(memory_format=torch.channels_last)
    masks = masks_for(model)
    assert_same(filled(scheme, model, masks), filled(scheme, last, masks))
    assert_same(weights_of(model), weights_of(last))
    for parameter in last.parameters():
        assert parameter.dim() != 4 or parameter.is_contiguous(memory_format=torch.channels_last)


@every_scheme
def test_the_default_device_and_dtype_change_nothing(scheme):
    plain, other = MODELS["cnn"].make(), MODELS["cnn"].make()
    masks = masks_for(plain)
    given = filled(scheme, plain, masks, bias_std=0.1)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            assert_same(given, filled(scheme, other, masks, bias_std=0.1))
    finally:
        torch.set_default_dtype(default)
    assert_same(dict(plain.named_parameters()), dict(other.named_parameters()))


@pytest.mark.gpu
@everywhere
@every_scheme
def test_the_device_changes_no_bit(scheme, kind):
    plain, there = MODELS[kind].make(), MODELS[kind].make().to("cuda")
    masks = masks_for(plain)
    first = filled(scheme, plain, masks, bias_std=0.1)
    second = filled(scheme, there, {name: mask.cuda() for name, mask in masks.items()}, bias_std=0.1)
    assert_same(first, {name: mask.cpu() for name, mask in second.items()})
    assert all(parameter.is_cuda for parameter in there.parameters())
    assert_same(dict(plain.named_parameters()), {name: p.detach().cpu() for name, p in there.named_parameters()})


@every_scheme
def test_given_masks_are_not_written_to(scheme):
    model = MODELS["cnn"].make()
    masks = masks_for(model)
    before = {name: mask.clone() for name, mask in masks.items()}
    filled(scheme, model, masks)
    assert_same(masks, before)


@every_scheme
@pytest.mark.parametrize(
    ("masks", "error", "message"),
    [
        ({"nope": torch.ones(2, 2) > 0}, ValueError, r"masks: expected names of layers \(0, 1\); got 'nope'"),
        ({"0": torch.ones(3, 4)}, TypeError, "masks: expected bool tensors; got torch.float32 for '0'"),
        ({"0": torch.ones(4, 3) > 0}, ValueError, r"masks: expected shape \(3, 4\) for '0'; got \(4, 3\)"),
    ],
)
def test_masks_that_do_not_fit_are_refused(scheme, masks, error, message):
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(error, match=message):
        SCHEMES[scheme](model, masks)
    assert_same(model.state_dict(), before)


@every_scheme
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"gain": float("nan")}, ValueError),
        ({"gain": "1"}, TypeError),
        ({"bias_std": -0.1}, ValueError),
        ({"bias_std": float("inf")}, ValueError),
        ({"bias_std": None}, TypeError),
    ],
)
def test_bad_numbers_are_refused_by_name(scheme, options, error):
    model = MODELS["mlp"].make()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(error, match=f"^{next(iter(options))}: expected"):
        filled(scheme, model, masks_for(model), **options)
    assert_same(model.state_dict(), before)
