import pytest
import torch
from torch.nn import functional

from orthosparse import masks_of
from orthosparse.lab.training import Callback, fit, train
from orthosparse.lab.training.loop import evaluate
from orthosparse.lab.training.recipe import learning_rate


def _plainly(state, epochs):
    """Train the network of a fresh state with nothing but torch, one line after the other."""
    network, recipe = state.networks.network, state.recipe
    optimizer = torch.optim.SGD(
        network.parameters(), lr=1.0, momentum=recipe.momentum, nesterov=True, weight_decay=recipe.weight_decay
    )
    losses = []
    for epoch in range(epochs):
        optimizer.param_groups[0]["lr"] = learning_rate(recipe, epoch)
        for images, labels in state.loader.epoch(epoch):
            optimizer.zero_grad()
            loss = functional.cross_entropy(network(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return network, losses


class _Losses(Callback):
    def __init__(self):
        self.losses, self.calls = [], []

    def on_start(self, state):
        self.calls.append("start")

    def on_epoch_start(self, state):
        self.calls.append(f"epoch {state.epoch} from {state.step}")

    def on_step(self, state):
        self.losses.append(float(state.records.values[0, state.step - 1]))

    def on_epoch(self, state):
        self.calls.append(f"done {state.histories[0][-1]['epoch']}")

    def on_end(self, state):
        self.calls.append("end")


@pytest.mark.parametrize("density", [1.0, 0.3])
def test_the_loop_does_what_a_plain_loop_does(assembled, density):
    state, seen = assembled(density=density), _Losses()
    fit(state, [seen])
    network, losses = _plainly(assembled(density=density), 2)
    # float32 over 42 steps; the kernels of the optimizers round differently.
    torch.testing.assert_close(torch.tensor(seen.losses), torch.tensor(losses), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(
        dict(state.networks.network.named_parameters()), dict(network.named_parameters()), atol=1e-4, rtol=0
    )


def test_the_loop_learns(assembled):
    state = assembled(epochs=4)
    fit(state)
    assert state.histories[0][0]["accuracy"] < state.histories[0][-1]["accuracy"]
    assert state.histories[0][-1]["validation_accuracy"] > 0.85


def test_the_history_holds_every_epoch_once(assembled):
    state = assembled(epochs=4)
    fit(state)
    assert [entry["epoch"] for entry in state.histories[0]] == [1, 2, 3, 4]
    assert [round(entry["lr"], 6) for entry in state.histories[0]] == [0.2, 0.2, 0.02, 0.002]
    assert set(state.histories[0][0]) >= {"loss", "accuracy", "validation_loss", "validation_accuracy", "seconds"}
    assert (state.epoch, state.step, state.steps_done) == (4, 0, 4 * len(state.loader))


def test_the_epochs_loss_and_accuracy_are_means_over_samples_not_over_batches(assembled):
    state = assembled(epochs=1, lr=0.0, weight_decay=0.0)
    assert len(state.loader.split) % state.loader.batch  # the last batch is short
    fit(state)
    with torch.no_grad():
        x, y = (torch.cat(parts) for parts in zip(*state.loader.epoch(0), strict=True))
        logits = state.networks.network(x)
    assert state.histories[0][0]["loss"] == pytest.approx(float(functional.cross_entropy(logits, y)), rel=1e-5)
    assert state.histories[0][0]["accuracy"] == pytest.approx(float((logits.argmax(1) == y).float().mean()), abs=1e-7)


def test_weights_off_the_mask_stay_exactly_zero(assembled):
    state = assembled()
    masks = masks_of(state.networks.network)
    fit(state)
    for name, mask in masks_of(state.networks.network).items():
        assert torch.equal(mask, masks[name])
        assert not state.networks.network.get_submodule(name).parametrizations.weight.original[~mask].any()


@pytest.mark.parametrize("accumulate", [2, 3, 64])
def test_accumulated_parts_give_the_whole_batchs_step(assembled, accumulate):
    whole, parts = assembled(epochs=1), assembled(epochs=1, accumulate=accumulate)
    fit(whole)
    fit(parts)
    torch.testing.assert_close(
        whole.networks.network.state_dict(), parts.networks.network.state_dict(), atol=2e-5, rtol=0
    )


def test_clipping_bounds_what_a_step_moves(assembled):
    state = assembled(epochs=1, clip=1e-3, lr=1.0, momentum=0.0, nesterov=False, weight_decay=0.0)
    before = [p.detach().clone() for p in state.networks.network.parameters()]
    fit(state)
    moved = sum(
        float((p.detach() - b).square().sum()) for p, b in zip(state.networks.network.parameters(), before, strict=True)
    )
    assert moved**0.5 <= len(state.loader) * 1e-3 * 1.001
    assert state.histories[0][0]["gradient_norm"] > 1e-2  # the norm that is logged is the one before


def test_callbacks_are_called_at_every_turn(assembled):
    seen = _Losses()
    state = assembled()
    fit(state, [seen])
    assert seen.calls == ["start", "epoch 0 from 0", "done 1", "epoch 1 from 0", "done 2", "end"]
    assert len(seen.losses) == state.steps_done


def test_callbacks_are_told_of_the_end_when_an_error_stops_the_run(assembled):
    class Stop(_Losses):
        def on_step(self, state):
            raise KeyboardInterrupt

    seen = Stop()
    with pytest.raises(KeyboardInterrupt):
        fit(assembled(), [seen])
    assert seen.calls[-1] == "end"


def _with_dropout(state):
    state.networks.network.register_forward_pre_hook(
        lambda _, x: (functional.dropout(x[0], 0.5, state.networks.network.training),)
    )
    return state


def test_what_layers_draw_follows_from_the_seed_and_leaves_the_global_generator(assembled, same_weights):
    before = torch.random.get_rng_state()
    first, second, other = (_with_dropout(assembled(epochs=1)) for _ in range(3))
    fit(first)
    assert torch.equal(torch.random.get_rng_state(), before)
    fit(second)
    other.seed += 1
    fit(other)
    assert same_weights(first.networks.network, second.networks.network)
    assert not same_weights(first.networks.network, other.networks.network)


@pytest.mark.parametrize(
    "changes", [{"label_smoothing": 0.1}, {"mixup": 0.8, "cutmix": 1.0}, {"loss": "bce", "lr": 2.0}]
)
def test_what_a_recipe_adds_to_the_loss_still_learns(assembled, changes):
    state = assembled(epochs=4, **changes)
    fit(state)
    assert state.histories[0][-1]["validation_accuracy"] > 0.8


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp64"])
def test_every_precision_learns(assembled, precision):
    state = assembled(epochs=2, precision=precision)
    fit(state)
    assert state.histories[0][-1]["validation_accuracy"] > 0.8
    expected = torch.float64 if precision == "fp64" else torch.float32
    assert next(state.networks.network.parameters()).dtype == expected


@pytest.mark.parametrize("optimizer", ["adamw", pytest.param("lamb", marks=pytest.mark.torchvision)])
def test_other_optimizers_learn(assembled, optimizer):
    state = assembled(epochs=3, optimizer=optimizer, lr=0.03, decay_vectors=False, schedule="cosine")
    fit(state)
    assert state.histories[0][-1]["validation_accuracy"] > 0.85


@pytest.mark.parametrize("dynamic", ["set", "rigl"])
def test_masks_move_and_keep_their_counts(assembled, dynamic):
    state = assembled(dynamic=dynamic, every=5)
    before = masks_of(state.networks.network)
    fit(state)
    after = masks_of(state.networks.network)
    assert state.networks.rewirer.updates == {"set": 8, "rigl": 6}[dynamic]
    assert all(int(after[name].sum()) == int(before[name].sum()) for name in before)
    assert any(not torch.equal(after[name], before[name]) for name in before)


def test_a_graph_without_a_gpu_is_refused(assembled):
    with pytest.raises(ValueError, match="graph: expected a single GPU"):
        fit(assembled(), graph=True)


def test_one_network_after_another_is_compiled(config, monkeypatch):
    graphs, compile_ = [], torch.compile

    def counting(graph, inputs):
        graphs.append(inputs)
        return graph

    monkeypatch.setattr(torch, "compile", lambda network, **how: compile_(network, backend=counting, **how))
    torch.compiler.reset()  # what other tests have compiled counts, too
    with torch._dynamo.config.patch(recompile_limit=2):  # networks that torch compiles before it gives up
        for _ in range(4):
            train(config(epochs=1), 1, device="cpu", compiled=True, logs=())
    assert len(graphs) == 4


def test_figures_are_those_of_the_whole_split_at_once(assembled):
    state = assembled()
    images, labels = (torch.cat(parts) for parts in zip(*state.validation.epoch(0), strict=True))
    (measured,) = evaluate(state, state.validation)
    logits = state.networks.network(images).detach()
    assert measured["loss"] == pytest.approx(functional.cross_entropy(logits, labels).item(), rel=1e-5)
    assert measured["accuracy"] == (logits.argmax(1) == labels).double().mean().item()


def test_the_network_is_evaluated_in_eval_mode_and_left_as_it_was(assembled):
    state, modes = assembled(), set()
    state.networks.network.register_forward_hook(
        lambda network, *_: modes.add((network.training, torch.is_grad_enabled()))
    )
    state.networks.model.train()
    evaluate(state, state.validation)
    assert modes == {(False, False)}
    assert state.networks.network.training
