"""Laws over random networks: what the library makes of a network, or says about it, agrees with the network itself.

``--networks N`` checks each law on N of them. The id of a failed test has the seed of its network, and runs it again.
"""

import copy
import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import orthosparse
from contracts.random_networks import CLASSES, inputs, network, with_dead_units
from contracts.random_steps import CHANGING, OPERATIONS, SMOOTH_OPERATIONS
from orthosparse import isometry
from orthosparse.compacting import timing
from orthosparse.deploying import choosing, networks
from orthosparse.deploying.choosing import keep_features_first
from orthosparse.deploying.copies import arguments_of, difference, inference_copy, outputs_of
from orthosparse.deploying.folding import LAYERS
from orthosparse.deploying.forms import forms_of
from orthosparse.deploying.networks import Networks
from orthosparse.distributions import DISTRIBUTIONS
from orthosparse.masking.exchange import exchange

DENSITIES, DEAD = (0.2, 0.5), (0.0, 0.3, 0.6)
SMALL = 1e-13


def pytest_generate_tests(metafunc):
    metafunc.parametrize("seed", range(metafunc.config.getoption("--networks")))


def drawn(seed, *args, **options):
    """Return a network, its generator and a choice of its own; pytest shows the network if the test fails."""
    model = network(seed, *args, **options)
    print(model)
    return model, torch.Generator().manual_seed(seed), random.Random(seed)


class AllNetworks(Networks):
    """Forms of a network, without times: all are kept."""

    def _seconds(self, networks):
        self.by_name |= {f"shrunk dense {key}": form for key, form in networks.items()}
        return dict.fromkeys(networks, 0.0)


def with_sparse_layers(base):
    """Return a copy whose layers are in their sparsest form."""
    model = copy.deepcopy(base)
    layers = {name: layer for name, layer in model.named_modules() if type(layer) in LAYERS}
    exchange(model, {layer: [*forms_of(name, layer)[0].values()][-1] for name, layer in layers.items()})
    keep_features_first(model)
    return model


def test_every_form_that_deploy_considers_has_the_outputs_of_the_network_on_other_inputs_too(seed):
    operations = OPERATIONS if seed % 2 else {name: OPERATIONS[name] for name in OPERATIONS if name not in CHANGING}
    model, generator, choose = drawn(seed, operations, pairs=True)
    with_dead_units(model, generator, density=choose.choice(DENSITIES), dead=choose.choice(DEAD), norms=0.2)
    example = 0.3 * inputs(model, choose.choice([1, 2]), generator)
    found = AllNetworks(inference_copy(model, None), arguments_of(example, None), tolerance=1e-9)
    found.add_channels_last()
    found.add_shrunk()
    found.add("deployed", with_sparse_layers(found.base))
    refused = [note for note in found.notes if "refused" in note]
    # What is a view in one memory format may be a copy in the other one, and changes in place then differ.
    assert not refused or refused[0].startswith("channels-last"), refused
    forms = found.by_name | {"base": found.base}
    for scale, samples in ((0.3, 3), (1.0, 1), (20.0, 2), (1000.0, 1), (0.0, 2)):
        arguments = (scale * inputs(model, samples, generator),), {}
        expected = outputs_of(model, arguments)
        gaps = {name: difference(outputs_of(form, arguments), expected) for name, form in forms.items()}
        assert max(gaps.values()) < 1e-7, (scale, samples, gaps)


def test_a_compact_network_trains_as_the_masked_one_and_expands_to_it(seed):
    model, generator, choose = drawn(seed, trainable=True)
    structure, scheme = choose.choice(["entries", "block:16"]), choose.choice(["eoi", "base"])
    orthosparse.sparsify(model.train(), 0.6, scheme=scheme, structure=structure, floor="minimal", generator=generator)
    masked, compact = copy.deepcopy(model), copy.deepcopy(model)
    # SGD: others divide gradients by their sizes, which turns rounding errors of zero into whole steps.
    optimizers = {each: torch.optim.SGD(each.parameters(), lr=0.001, momentum=0.9) for each in (masked, compact)}
    x = inputs(model, 4, generator)

    def step(each):
        output = each(x.clone())
        optimizers[each].zero_grad()
        output.sin().mean().backward()
        optimizers[each].step()
        return output.detach()

    for number in range(5):
        if number == 1:
            orthosparse.compact(compact, optimizer=optimizers[compact])
        if number == 4:
            orthosparse.expand(compact, optimizer=optimizers[compact])
        torch.testing.assert_close(step(compact), step(masked), rtol=1e-7, atol=1e-9, equal_nan=True)
    expected = masked.state_dict()
    assert compact.state_dict().keys() == expected.keys()
    for name, tensor in compact.state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-6, atol=1e-9, equal_nan=True, msg=name)


def layers_of(model):
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)}


def snip_scores(weights, gradients):
    return [(weight * gradient).abs() for weight, gradient in zip(weights, gradients, strict=True)]


def grasp_scores(weights, gradients):
    product = sum((gradient * gradient.detach()).sum() for gradient in gradients)
    hessian_times = torch.autograd.grad(product, weights, materialize_grads=True)
    return [weight * each for weight, each in zip(weights, hessian_times, strict=True)]


@pytest.mark.parametrize(
    ("name", "scores_of", "options"), [("snip", snip_scores, {}), ("grasp", grasp_scores, {"temperature": 1.0})]
)
def test_the_weights_that_are_kept_have_the_largest_scores(seed, name, scores_of, options):
    model, generator, _ = drawn(seed, trainable=True)
    x, y = inputs(model, 4, generator), torch.randint(CLASSES, (4,), generator=generator)
    masks = DISTRIBUTIONS[name](model, 0.3, batch=(x, y), generator=generator, **options)
    layers = layers_of(model.train())
    weights = [layer.weight for layer in layers.values()]
    loss = F.cross_entropy(model(x.clone()), y)
    scores = scores_of(weights, torch.autograd.grad(loss, weights, create_graph=True, materialize_grads=True))
    assert masks.keys() == layers.keys()
    flat, kept = (torch.cat([each.detach().flatten() for each in parts]) for parts in (scores, masks.values()))
    assert flat[kept].min() >= flat[~kept].max() - 1e-9 * flat.abs().max()


class Watched:
    """The inputs and outputs of each layer of a network, call by call."""

    def __init__(self, model, x):
        self.calls = {name: [] for name in layers_of(model)}
        hooks = [layer.register_forward_hook(self._watch(name)) for name, layer in layers_of(model).items()]
        self.output = model(x.clone().requires_grad_() * 1.0)
        for hook in hooks:
            hook.remove()

    def _watch(self, name):
        def hook(layer, args, output):
            self.calls[name].append((args[0].detach().clone(), output))
            return output.clone()  # which later steps may change in place

        return hook


def connections(layer, varies, matters):
    """Return which weights of a layer join an input that varies to an output that matters."""
    if isinstance(layer, nn.Linear):
        return matters.flatten(0, -2).T @ varies.flatten(0, -2) > 0
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    padded = F.pad(varies, [side for side in reversed(layer.padding) for _ in range(2)], mode=mode)
    options = {"stride": layer.stride, "groups": layer.groups}
    return nn.grad.conv2d_weight(padded, layer.weight.shape, matters, **options) > 0.5


def live_by_autograd(model, generator):
    """Return which weights read something that varies with the input, and write what the output depends on."""
    runs = [Watched(model, inputs(model, 2, generator)) for _ in range(3)]
    live = {}
    for name, layer in layers_of(model).items():
        live[name] = torch.zeros_like(layer.weight, dtype=torch.bool)
        for calls in zip(*(run.calls[name] for run in runs), strict=True):
            slopes = [
                torch.autograd.grad(run.output.sin().sum(), output, retain_graph=True, materialize_grads=True)[0]
                for run, (_, output) in zip(runs, calls, strict=True)
            ]
            matters = sum(slope.abs() for slope in slopes) > SMALL
            varies = sum((x - calls[0][0]).abs() for x, _ in calls) > SMALL
            live[name] |= connections(layer, varies.double(), matters.double())
    return {name: each & (layers_of(model)[name].weight != 0) for name, each in live.items()}


def test_the_weights_on_a_path_are_those_through_which_the_output_depends_on_the_input(seed):
    model, generator, choose = drawn(seed, SMOOTH_OPERATIONS, trainable=True)
    with_dead_units(model, generator, density=choose.choice(DENSITIES), dead=choose.choice(DEAD))
    masks = {name: layer.weight != 0 for name, layer in layers_of(model).items()}
    found = isometry.effective_density(model, inputs(model, 1, generator), masks=masks)
    for name, live in live_by_autograd(model, generator).items():
        assert torch.equal(found.layers[name].live, live), name


def test_singular_values_are_those_of_the_jacobian_that_autograd_computes(seed):
    model, generator, choose = drawn(seed, trainable=True)
    with_dead_units(model, generator, density=choose.choice([0.5, 1.0]), dead=choose.choice([0.0, 0.3]))
    x = inputs(model, 2, generator)
    model(changed := x.clone())
    if changed._version:
        with pytest.raises(ValueError, match="model: changes its input in place"):
            isometry.singular_values(model, x)
        return
    jacobians = torch.autograd.functional.jacobian(lambda x: model(x * 1.0).sum(0), x)
    expected = torch.linalg.svdvals(jacobians.transpose(0, 1).flatten(2))
    atol = max(1e-9 * float(expected.max()), 1e-15)  # a mean of softmax has no derivative but rounding
    torch.testing.assert_close(isometry.singular_values(model, x).values, expected, rtol=1e-6, atol=atol)


def test_a_batch_is_not_changed_by_any_network(seed, monkeypatch):
    model, generator, choose = drawn(seed, trainable=True)

    def once(calls, *args, **options):
        for call in calls.values():
            call()
        return {name: choose.random() for name in calls}

    for module in (choosing, networks, timing):
        monkeypatch.setattr(module, "seconds_in_turn", once)
    x, y = inputs(model, 4, generator), torch.randint(CLASSES, (4,), generator=generator)
    given = x.clone(), y.clone()
    orthosparse.sparsify(model, 0.3, distribution="snip", batch=(x, y), floor="minimal", generator=generator)
    orthosparse.compact(model, x)
    orthosparse.deploy(model, x, compile=False)
    assert all(map(torch.equal, (x, y), given))
