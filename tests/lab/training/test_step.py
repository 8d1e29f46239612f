import copy
import dataclasses
from functools import partial

import pytest
import torch

from orthosparse.lab.data import Augmentation, Dataset, Normalisation, Split
from orthosparse.lab.training import RECIPES, NonFiniteError, Run, assemble, fit, launch
from orthosparse.lab.training.nonfinite import find_errors
from orthosparse.lab.training.recipe import Recipe
from orthosparse.lab.training.step import Graphed, Stepper, binary_cross_entropy, gradients, hits, losses_of

RECIPE = Recipe(epochs=1, lr=0.1)


@pytest.fixture
def batch(generator):
    logits = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)
    return logits, torch.randint(4, (2, 6), generator=generator)


def test_cross_entropy_is_the_sum_of_minus_the_logarithms_of_the_right_probabilities(batch):
    logits, labels = batch
    right = logits.softmax(2).gather(2, labels.unsqueeze(2)).squeeze(2)
    torch.testing.assert_close(losses_of(RECIPE, logits, labels), -right.log().sum(1))


def test_smoothing_mixes_the_target_with_the_uniform_distribution(batch):
    logits, labels = batch
    target = 0.9 * torch.nn.functional.one_hot(labels, 4) + 0.1 / 4
    smoothed = partial(losses_of, dataclasses.replace(RECIPE, label_smoothing=0.1))
    torch.testing.assert_close(smoothed(logits, labels), -(target * logits.log_softmax(2)).sum((1, 2)))


@pytest.mark.parametrize("loss", ["cross_entropy", "bce"])
def test_parts_of_a_batch_add_up_to_the_whole(batch, loss):
    logits, labels = batch
    whole = partial(losses_of, dataclasses.replace(RECIPE, loss=loss))
    torch.testing.assert_close(
        whole(logits[:, :1], labels[:, :1]) + whole(logits[:, 1:], labels[:, 1:]), whole(logits, labels)
    )


@pytest.mark.parametrize("loss", ["cross_entropy", "bce"])
def test_an_empty_part_costs_nothing_and_keeps_its_gradient_finite(loss):
    logits = torch.zeros(1, 0, 4, requires_grad=True)
    value = losses_of(dataclasses.replace(RECIPE, loss=loss), logits, torch.zeros(1, 0, dtype=torch.int64))
    value.sum().backward()
    assert value == 0


def test_binary_cross_entropy_counts_both_classes_of_a_mixed_image_as_present():
    logits = torch.tensor([[[2.0, -1.0, 0.0]]], dtype=torch.float64)
    mixed = torch.tensor([[[0.7, 0.3, 0.0]]], dtype=torch.float64)
    p = logits.sigmoid()[0, 0]
    expected = -(p[0].log() + p[1].log() + (1 - p[2]).log()) / 3
    torch.testing.assert_close(binary_cross_entropy(logits, mixed), expected.view(1))


def test_hits_count_the_largest_logits_and_the_largest_probabilities():
    logits = torch.tensor([[[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]])
    assert hits(logits, torch.tensor([[1, 1, 1]])) == 2
    assert hits(logits, torch.tensor([[[0.4, 0.6], [0.4, 0.6], [0.6, 0.4]]])) == 1


@pytest.mark.parametrize("changes", [{}, {"accumulate": 2}, {"density": 1.0}, {"dynamic": "rigl", "every": 3}], ids=str)
def test_a_step_past_the_wrapper_is_one_through_it_to_the_last_bit(assembled, same_weights, changes):
    past, through = assembled(precision="fp32", **changes), assembled(precision="fp32", **changes)
    assert past.networks._is_plain
    through.networks._is_plain = False
    fit(past)
    fit(through)
    assert same_weights(past.networks.network, through.networks.network)
    assert [entry["loss"] for entry in past.histories[0]] == [entry["loss"] for entry in through.histories[0]]


@pytest.mark.parametrize("precision", ["bf16", "fp64"])
def test_another_precision_goes_through_the_wrapper(assembled, precision):
    assert not assembled(precision=precision).networks._is_plain


def test_gradients_are_those_of_the_last_batch_alone(assembled):
    state = assembled()
    (first, one), (second, two), *_ = state.loader.epoch(0)
    gradients(state, first, one[None], len(one))
    gradients(state, second, two[None], len(two))
    found = [parameter.grad.clone() for parameter in state.networks.network.parameters()]
    gradients(state, second, two[None], len(two))
    assert all(torch.equal(p.grad, g) for p, g in zip(state.networks.network.parameters(), found, strict=True))


@pytest.mark.parametrize("parts", [2, 3])
def test_parts_of_a_batch_add_up_to_it(assembled, parts):
    whole, cut = assembled(precision="fp64"), assembled(precision="fp64", accumulate=parts)
    images, labels = next(iter(whole.loader.epoch(0)))
    found = [gradients(state, images, labels[None], len(labels)) for state in (whole, cut)]
    # Sums of float64 in another order.
    torch.testing.assert_close(*found, atol=0, rtol=1e-12)
    for one, other in zip(cut.networks.network.parameters(), whole.networks.network.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-12, rtol=1e-9)


class _Poison(torch.autograd.Function):
    """Passes values, and a gradient that is not finite."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * torch.inf


def _poisoned(state, at, layer="fc2"):
    """Make the gradient that flows back out of a layer's output infinite at step `at` of the first epoch."""

    def hook(module, inputs, output):
        return _Poison.apply(output) if (state.epoch, state.step) == (0, at) and module.training else output

    state.networks.network.get_submodule(layer).register_forward_hook(hook)
    return state


def _run(state):
    """Take all steps of the first epoch, whatever comes of them, and find out why the network stopped."""
    stepper = Stepper(state)
    state.set_rate()
    for images, labels in state.loader.epoch(0):
        stepper(images, labels)
    find_errors(state)
    return state.errors.get(0)


@pytest.mark.parametrize("dynamic", [None, "rigl"])
@pytest.mark.parametrize("looking", [True, False])
def test_the_step_and_the_layer_of_the_first_bad_gradient_are_named(assembled, looking, dynamic):
    state = _poisoned(assembled(dynamic=dynamic, every=3), at=7)
    if looking:  # as on a CPU, where the loop stops at once
        fit(state)
        assert state.step == 8
    error = state.errors[0] if looking else _run(state)
    assert isinstance(error, NonFiniteError)
    assert (error.epoch, error.step) == (0, 7)
    assert error.layer in ("fc2.weight", "fc2.bias")
    assert f"epoch 1, step 8 of {len(state.loader)}" in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": "adamw"},
        pytest.param({"optimizer": "lamb"}, marks=pytest.mark.torchvision),
        {"dynamic": "rigl", "every": 3},
    ],
)
def test_the_weights_are_those_from_before_the_bad_step(assembled, same_weights, changes):
    state, good = _poisoned(assembled(**changes), at=7), assembled(**changes)
    assert _run(state) is not None
    stepper = Stepper(good)
    good.set_rate()
    for step, (images, labels) in enumerate(good.loader.epoch(0)):
        if step == 7:
            break
        stepper(images, labels)
    assert same_weights(state.networks.network, good.networks.network)


def test_a_loss_that_overflows_is_found_where_it_begins(assembled):
    state = assembled(lr=1e30, activation="linear", density=1.0)
    fit(state)
    assert state.errors[0].step in (1, 2)
    assert "is not finite" in str(state.errors[0])
    assert str(state.errors[0]).endswith("Try a lower lr")
    assert state.histories == [[]]


def test_bad_images_are_called_bad_images(assembled):
    state = assembled()
    state.loader._scale = state.loader._scale * torch.nan
    fit(state)
    assert str(state.errors[0]).endswith("(the images are not finite)")  # no rate would help


def test_hooks_are_gone_after_a_diagnosis(assembled):
    state = _poisoned(assembled(), at=0)
    assert _run(state) is not None
    assert not any(p._post_accumulate_grad_hooks for p in state.networks.network.parameters())
    assert sum(len(module._forward_hooks) for module in state.networks.network.modules()) == 1


@pytest.mark.parametrize("changes", [{}, {"precision": "bf16"}, {"precision": "fp64"}])
def test_whole_batches_between_two_moves_of_the_masks_are_compiled_and_nothing_else(assembled, changes, monkeypatch):
    graphs, compile_ = [], torch.compile

    def counting(graph, inputs):
        graphs.append(inputs[0].shape)
        return graph  # as it is: what was traced must compute the same

    monkeypatch.setattr(torch, "compile", lambda network, **how: compile_(network, backend=counting, **how))
    losses = []
    for compiled in (False, True):
        state = assembled(dynamic="rigl", every=9, **changes)
        if compiled:
            state.networks.compile()
        stepper = Stepper(state)
        state.set_rate()
        for images, labels in state.loader.epoch(0):  # its last batch is a short one
            stepper(images, labels)
        losses.append(state.values()[0])
    assert len(graphs) == 1
    torch.testing.assert_close(*losses, rtol=0, atol=0)


def _trained(assembled, steps, **how):
    state = assembled(how.pop("device", "cuda"), **how.pop("changes", {}))
    stepper = Stepper(state, **how)
    for epoch in range(2):
        state.epoch, state.step = epoch, 0
        state.set_rate()
        for _, (images, labels) in zip(range(steps), state.loader.epoch(epoch), strict=False):
            stepper(images, labels)
    return state, state.records.values[0].cpu()


@pytest.mark.gpu
class TestOnAGpu:
    @pytest.fixture
    def on(self, config):
        def make(device, **changes):
            settings = config(**changes)
            return assemble(settings, 1, launch(device=device, precision=settings.recipe.precision))

        return make

    @pytest.mark.parametrize("changes", [{}, {"density": 1.0}, {"dynamic": "rigl", "every": 4}, {"accumulate": 2}])
    def test_a_captured_step_trains_as_an_eager_one_does(self, on, changes):
        changes = {"precision": "fp32", **changes}
        graphed, losses = _trained(on, 99, graph=True, changes=changes)
        eager, expected = _trained(on, 99, graph=False, changes=changes)
        # Sums in another order, 42 steps of lr 0.2 long.
        torch.testing.assert_close(losses, expected, atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(
            graphed.networks.network.state_dict(), eager.networks.network.state_dict(), atol=1e-2, rtol=1e-2
        )

    def test_a_captured_step_follows_the_rate(self, on, same_weights):
        state, _ = _trained(on, 10, graph=True, changes={"precision": "fp32"})
        stepper = Stepper(state, graph=True)
        state.step = 0
        batches = list(state.loader.epoch(0))[:12]
        for images, labels in batches[:8]:
            stepper(images, labels)
        before = copy.deepcopy(state.networks.network)
        state.networks.optimizer.param_groups[0]["lr"].fill_(0.0)
        stepper(*batches[8])
        assert same_weights(state.networks.network, before)
        state.networks.optimizer.param_groups[0]["lr"].fill_(0.1)
        stepper(*batches[9])
        assert not same_weights(state.networks.network, before)

    def test_dropout_differs_from_replay_to_replay(self, on):
        state = on("cuda", precision="fp32", lr=0.0, weight_decay=0.0)
        dropout = torch.nn.functional.dropout
        state.networks.network.register_forward_pre_hook(
            lambda _, x: (dropout(x[0], 0.5, state.networks.network.training),)
        )
        stepper = Stepper(state, graph=True)
        images, labels = next(iter(state.loader.epoch(0)))
        for _ in range(10):
            stepper(images, labels)
        losses = state.values()[0, :10, 0].tolist()
        assert len(set(losses)) == 10

    def test_a_bad_step_inside_a_graph_is_found_afterwards(self, on):
        state = on("cuda", lr=1e30, activation="linear", density=1.0, precision="fp32")
        fit(state)
        assert state.errors[0].step in (1, 2)

    @pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning")  # fp64 is what is asked for
    @pytest.mark.parametrize("compiled", [False, True])
    @pytest.mark.parametrize(("precision", "steps", "tolerance"), [("fp64", 5, 1e-6), ("bf16", 3, 0.02)])
    def test_convolutions_with_masks_train_alike_in_a_graph(self, precision, steps, tolerance, compiled, generator):
        made_up = torch.randint(256, (600, 3, 32, 32), generator=generator, dtype=torch.uint8)
        split = Split(made_up, torch.randint(10, (600,), generator=generator), Normalisation((0.5,) * 3, (0.25,) * 3))
        data = Dataset("cifar10", split, None, split, 10, Augmentation(pad=4, flip=True))
        recipe = dataclasses.replace(RECIPES["resnet32"], lr=0.01, batch=64, precision=precision)
        config = Run("resnet32", "cifar10", recipe, density=0.1)
        losses = []
        for graph in (True, False):
            fabric = launch(device="cuda", precision=precision)
            state = assemble(config, 1, fabric, data=data.to("cuda"), channels_last=True)
            if compiled and graph:
                state.networks.compile()
            stepper = Stepper(state, graph=graph)
            state.set_rate()
            for images, labels in state.loader.epoch(0):
                stepper(images, labels)
            losses.append(state.values()[0])
        # Later ones say nothing: what is rounded otherwise grows by a hundred a step, from 1e-6 to a percent in fp32.
        # A compiled network rounds otherwise from its first step on.
        first = [each[: steps - compiled] for each in losses]
        torch.testing.assert_close(*first, rtol=tolerance, atol=0)


@pytest.mark.gpu
def test_every_call_works_once_whether_eager_captured_or_replayed():
    total, given = torch.zeros(1, device="cuda"), torch.zeros(1, device="cuda")
    calls = []

    def work():
        calls.append(1)
        total.add_(given)

    graphed = Graphed(work, warmup=3)
    for number in range(10):
        given.fill_(number)
        graphed()
    assert total.item() == sum(range(10))
    assert len(calls) == 4  # three eager calls and the capture
