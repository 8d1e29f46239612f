"""Networks that train together against the same networks trained alone."""

import dataclasses
import math
import os
import signal
from contextlib import nullcontext

import pytest
import torch

from contracts.states import assert_same
from lab.training.stacked.runs import Stop, check_equal
from orthosparse.lab.models import vgg16c
from orthosparse.lab.training import Callback, Recipe, Run, train, train_many
from orthosparse.lab.training.checkpoint import locked


def test_sixty_four_layers_of_four_members_are_four_single_runs(four, kept, tmp_path):
    check_equal(four(depth=64), kept, tmp_path, weights=1e-10, losses=1e-10)


def test_in_float32_they_agree_as_far_as_rounding_lets_them(four, kept, tmp_path):
    # Some 26 steps of 24 layers: rounding of 6e-8 grows to 1e-4 at most.
    check_equal(four(depth=24, precision="tf32"), kept, tmp_path, weights=1e-3, losses=1e-4)


def test_convolutional_networks_are_their_single_runs_too(four, kept, tmp_path):
    members = four(model="cnn1000", depth=8, width=8, epochs=1, dense_init="conv_orthogonal")
    check_equal(members[:3], kept, tmp_path, weights=1e-10, losses=1e-10)


@pytest.fixture
def residual(deep, few_digits):
    """Configurations of 32 residual layers on a few digits: two steps an epoch, the second one shorter."""
    shared = {"model": "resnet32", "batch": 40, "epochs": 1, "dense_init": "conv_orthogonal", "schedule": "constant"}
    return lambda **changes: dataclasses.replace(deep(**{**shared, **changes}), model_options={})


def test_residual_networks_are_their_single_runs_too(residual, kept, tmp_path):
    starts = [{"scheme": "eoi"}, {"distribution": "snip", "scheme": "base"}]
    members = [(residual(density=0.25, **start), seed) for seed, start in enumerate(starts, start=1)]
    # Gradients of some hundred, and a test by statistics that two batches have not settled: 1e-16 becomes 6e-12.
    check_equal([*members, (residual(), 3)], kept, tmp_path, weights=1e-9, losses=1e-9)


def test_vgg_networks_are_their_single_runs_too(deep, few_digits, kept, tmp_path, monkeypatch):
    # A quarter of the channels: the same layers, without fifteen million weights to draw and to train.
    narrow = tuple(tuple((channels // 4, kernel) for channels, kernel in stage) for stage in vgg16c._STAGES)
    monkeypatch.setattr(vgg16c, "_STAGES", narrow)
    shared = {"model": "vgg16c", "batch": 20, "epochs": 1, "dense_init": "conv_orthogonal"}
    vgg = lambda **changes: dataclasses.replace(deep(**shared, **changes), model_options={"hidden": 16})  # noqa: E731
    members = [(vgg(density=0.25, scheme="base", dynamic="set", every=2), 1), (vgg(), 2)]
    check_equal(members, kept, tmp_path, weights=1e-10, losses=1e-10)


@pytest.mark.parametrize(
    "changes",
    [
        {"nesterov": False, "label_smoothing": 0.1},
        {"decay_vectors": False, "schedule": "cosine", "weight_decay": 0.01},
        {"momentum": 0.5, "warmup": 1, "validation": False},
    ],
    ids=["plain momentum", "decay of matrices", "no validation"],
)
def test_recipes_mean_what_they_mean_alone(deep, kept, tmp_path, changes):
    members = [(deep(density=0.3, **changes), 1), (deep(**changes), 2)]
    check_equal(members, kept, tmp_path, weights=1e-10, losses=1e-10)


def test_starts_may_differ_in_what_the_recipe_says_of_them(deep, kept, tmp_path):
    members = [(deep(density=0.3, exclude=("fc1",)), 1), (deep(gain=1.1, bias_std=0.1), 1)]
    members.append((deep(dense_init="default", gain=1.0, bias_std=0.0), 2))
    check_equal(members, kept, tmp_path, weights=1e-10, losses=1e-10)


def with_planted(deep, lr, planted, **changes):
    """Three members, of which the middle one starts with weights of size `planted`."""
    shared = {"lr": lr, "precision": "tf32", **changes}
    middle = deep(gain=planted, activation="linear", **shared)
    others = [deep(density=0.3, activation="linear", **shared), deep(activation="linear", **shared)]
    return [(others[0], 1), (middle, 2), (others[1], 3)]


@pytest.mark.parametrize("shape", [{}, {"model": "cnn1000", "width": 8, "dense_init": "conv_orthogonal"}])
def test_a_member_that_diverges_leaves_the_bits_of_the_others_alone(deep, kept, shape):
    harmless = train_many(with_planted(deep, 0.01, 1.0, **shape), device="cpu")
    expected = kept.weights()
    planted = train_many(with_planted(deep, 0.01, 1e7, **shape), device="cpu")
    found = kept.weights()
    for place in (0, 2):
        assert_same(found[place], expected[place])
        assert planted[place]["test_loss"] == harmless[place]["test_loss"]
        assert math.isfinite(planted[place]["test_loss"])
    assert not harmless[1]["diverged"]
    assert planted[1]["diverged"]


@pytest.mark.parametrize("size", [1e4, 1e7])  # a norm that overflows, and gradients that are not numbers
def test_a_member_that_diverges_is_reported_as_alone_and_stands_still(deep, kept, size):
    members = with_planted(deep, 0.01, size)
    (_, middle, _) = train_many(members, device="cpu")
    alone = train(members[1][0], seed=2, device="cpu")
    for name in ("diverged", "diverged_epoch", "warnings"):
        assert middle[name] == alone[name]
    assert middle["diverged"]
    assert all(bool(torch.isfinite(tensor).all()) for tensor in kept.weights()[1].values())


def test_a_residual_network_that_diverges_is_reported_as_alone_and_leaves_the_bits_of_the_others_alone(residual, kept):
    shared, found = {"precision": "tf32"}, []
    for gain in (1.0, 1e15):  # of the middle one
        middle = residual(gain=gain, **shared)
        others = [(residual(density=0.3, **shared), 1), (residual(**shared), 3)]
        rows = train_many([others[0], (middle, 2), others[1]], device="cpu")
        found.append((rows, kept.weights()))
    (harmless, expected), (planted, weights) = found
    for place in (0, 2):
        assert_same(weights[place], expected[place])
        assert planted[place]["test_loss"] == harmless[place]["test_loss"]
    alone = train(middle, seed=2, device="cpu")
    assert not harmless[1]["diverged"]
    assert planted[1]["warnings"] == alone["warnings"]
    assert "stopped at epoch 1, step 2 of" in alone["warnings"]
    assert weights[1]["bn1.num_batches_tracked"] == 1, "the statistics stand still with the weights"
    assert all(bool(torch.isfinite(tensor).all()) for tensor in weights[1].values())


def test_a_member_that_diverges_later_keeps_the_epochs_it_finished(deep):
    # Decay that overshoots: the weights grow by the same factor at every step.
    overshooting = {"lr": 1.0, "weight_decay": 20.0, "schedule": "constant"}
    members = [(deep(epochs=3, precision="tf32", density=0.9, **overshooting), 1)]
    alone = train(members[0][0], seed=1, device="cpu")
    (row,) = train_many(members, device="cpu")
    assert row["warnings"] == alone["warnings"]
    assert len(row["curves"]["loss"]) == row["epochs"] == alone["diverged_epoch"] - 1 >= 1


def test_a_start_that_cannot_be_made_costs_no_other_and_is_reported_at_once(deep, caplog):
    members = [(deep(density=0.0001), 1), (deep(density=0.3), 2)]
    reported = []
    failed, other = train_many(members, device="cpu", progress=lambda *_: reported.append(len(caplog.records)))
    assert "seed 1, has no start and will not be trained: ValueError: density" in caplog.messages[0]
    assert reported[1] == len(caplog.messages) == 1
    assert "density: expected at least" in str(failed)
    alone = train(members[1][0], seed=2, device="cpu")
    assert other["test_loss"] == pytest.approx(alone["test_loss"], rel=1e-10)


def test_members_of_different_shapes_are_refused(deep):
    with pytest.raises(ValueError, match="number 1 differs in model_options, recipe"):
        train_many([(deep(), 1), (deep(depth=9, lr=0.1), 1)])
    with pytest.raises(ValueError, match="pairs: expected at least one"):
        train_many([])


@pytest.mark.parametrize("pace", [{"checkpoint_steps": -5}, {"checkpoint_seconds": -1.0}])
def test_a_wrong_pace_of_checkpoints_is_said_before_a_folder_is_made(deep, tmp_path, pace):
    with pytest.raises(ValueError, match=f"{next(iter(pace))}: expected 0 or more; got -"):
        train_many([(deep(), 1)], out=tmp_path / "run", device="cpu", **pace)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("stop", [2, 7, 13, 21])
def test_a_run_that_was_stopped_ends_with_the_same_weights(four, kept, tmp_path, stop):
    members = four()
    whole = train_many(members, device="cpu")
    expected = kept.weights()
    with pytest.raises(KeyboardInterrupt):
        train_many(members, device="cpu", out=tmp_path, checkpoint_steps=5, callbacks=[Stop(stop)])
    resumed = Stop(-1)
    rows = train_many(members, device="cpu", out=tmp_path, resume=True, callbacks=[resumed])
    assert resumed.started == stop // 5 * 5
    for mine, theirs in zip(kept.weights(), expected, strict=True):
        assert_same(mine, theirs)
    for mine, theirs in zip(rows, whole, strict=True):
        assert mine["test_loss"] == theirs["test_loss"]
        timeless = [{k: v for k, v in one["curves"].items() if k != "seconds"} for one in (mine, theirs)]
        assert timeless[0] == timeless[1]


def test_residual_networks_that_were_stopped_end_with_the_same_weights_and_statistics(residual, kept, tmp_path):
    shared = {"epochs": 2, "precision": "fp32"}
    members = [(residual(density=0.3, **shared), 1), (residual(**shared), 2)]
    (whole, _) = train_many(members, device="cpu")
    expected = kept.weights()
    with pytest.raises(KeyboardInterrupt):
        train_many(members, device="cpu", out=tmp_path, checkpoint_steps=1, callbacks=[Stop(3)])  # in the second epoch
    resumed = Stop(-1)
    (again, _) = train_many(members, device="cpu", out=tmp_path, resume=True, callbacks=[resumed])
    assert resumed.started == 3
    assert expected[0]["layer3.4.bn2.num_batches_tracked"] == 4
    for mine, theirs in zip(kept.weights(), expected, strict=True):
        assert_same(mine, theirs)
    assert again["test_loss"] == whole["test_loss"]


def test_an_interrupt_waits_for_the_step_and_is_saved(deep, kept, tmp_path):
    members = [(deep(density=0.3), 1), (deep(), 2)]
    train_many(members, device="cpu")
    expected = kept.weights()

    class Interrupt(Callback):
        def on_step(self, state):
            if state.steps_done == 9:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train_many(members, device="cpu", out=tmp_path, callbacks=[Interrupt()])
    assert [path.name for path in tmp_path.glob("checkpoint-*.json")] == ["checkpoint-000000009.json"]
    train_many(members, device="cpu", out=tmp_path, resume=True)
    for mine, theirs in zip(kept.weights(), expected, strict=True):
        assert_same(mine, theirs)


def test_starts_are_made_once(deep, tmp_path, monkeypatch):
    from orthosparse.lab.training import starts

    members = [(deep(density=0.3), seed) for seed in (1, 2, 3)]
    expected = train_many(members, device="cpu")
    made, make = [], starts.started

    def counted(config, seed, *rest, **where):
        made.append(seed)
        if made == [1, 2]:
            raise KeyboardInterrupt
        return make(config, seed, *rest, **where)

    monkeypatch.setattr(starts, "started", counted)
    with pytest.raises(KeyboardInterrupt):
        train_many(members, device="cpu", out=tmp_path)
    rows = train_many(members, device="cpu", out=tmp_path, resume=True)
    assert made == [1, 2, 2, 3]
    assert [row["test_loss"] for row in rows] == [row["test_loss"] for row in expected]


def test_a_divergence_survives_a_resume_and_a_finished_run_is_not_repeated(deep, kept, tmp_path):
    members = with_planted(deep, 0.01, 1e7)
    with pytest.raises(KeyboardInterrupt):
        train_many(members, device="cpu", out=tmp_path, checkpoint_steps=6, callbacks=[Stop(20)])  # in the second epoch
    first = train_many(members, device="cpu", out=tmp_path, resume=True)
    alone = train_many(members, device="cpu")
    assert first[1]["warnings"] == alone[1]["warnings"]
    again = Stop(-1)
    second = train_many(members, device="cpu", out=tmp_path, resume=True, callbacks=[again])
    assert again.started == len(kept.state.loader) * members[0][0].recipe.epochs  # nothing is trained twice
    assert second == [{**each, "resumed_seconds": each["train_seconds"]} for each in first]
    with pytest.raises(ValueError, match="holds a run already"):
        train_many(members, device="cpu", out=tmp_path)
    with pytest.raises(ValueError, match=r"differ in 0\.seed \(1 there, 9 here\)"):
        train_many([(members[0][0], 9), *members[1:]], device="cpu", out=tmp_path, resume=True)


def test_a_folder_that_is_in_use_is_left_alone(deep, tmp_path):
    with locked(tmp_path), pytest.raises(ValueError, match=r"out: .* is in use by process"):
        train_many([(deep(density=0.3), 1)], device="cpu", out=tmp_path, resume=True)


@pytest.mark.parametrize("finished", [True, False])
def test_other_members_are_answered_shortly(deep, tmp_path, finished):
    few = [(deep(density=0.3), seed) for seed in (1, 2)]
    with nullcontext() if finished else pytest.raises(KeyboardInterrupt):
        stop = Stop(-1 if finished else 7)
        train_many(few, device="cpu", out=tmp_path, checkpoint_steps=5, callbacks=[stop])
    for many in ([(deep(density=0.3), seed) for seed in range(1, 20)], [(deep(), seed) for seed in range(9, 30)]):
        with pytest.raises(ValueError, match="resume: expected the settings of the checkpoint") as caught:
            train_many(many, device="cpu", out=tmp_path, resume=True)
        assert len(str(caught.value)) < 300
    assert sorted(path.name for path in (tmp_path / "starts").iterdir()) == ["000", "001"]


@pytest.mark.parametrize("many", [True, False])
def test_without_held_out_samples_the_curves_are_of_the_test_samples(deep, many, tmp_path):
    run = dataclasses.replace(deep(), validation=False)
    row = train_many([(run, 1)], device="cpu")[0] if many else train(run, seed=1, device="cpu", out=tmp_path, logs=())
    for name in ("test_accuracy", "test_loss"):
        assert len(row["curves"][name]) == 2
        assert row["curves"][name][-1] == row[name]


def test_progress_tells_starts_and_epochs(deep):
    reported = []
    train_many([(deep(), 1), (deep(), 2)], device="cpu", progress=lambda *state: reported.append(state))
    assert reported[:2] == [(0.0, "start 1 of 2"), (0.0, "start 2 of 2")]
    assert reported[2][1] == "epoch 1 of 2, 2 together"


@pytest.mark.gpu
@pytest.mark.parametrize("model", ["mlp1000", "cnn1000"])
@pytest.mark.parametrize("fused", [False, True])
def test_a_graph_takes_the_steps_that_the_eager_loop_takes(deep, kept, model, fused):
    shape = {"model": model, "depth": 12, "width": 16, "precision": "fp32"}
    members = [(deep(density=0.3, dense_init="conv_orthogonal", **shape), 1), (deep(**shape), 2)]
    train_many(members, device="cuda", graph=False, fused=False)
    expected = kept.weights()
    train_many(members, device="cuda", graph=True, fused=fused)
    for mine, theirs in zip(kept.weights(), expected, strict=True):
        for name, value in theirs.items():
            torch.testing.assert_close(mine[name].float(), value.float(), rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
def test_a_graph_of_residual_networks_has_the_bits_of_the_eager_loop(kept):
    recipe = Recipe(epochs=2, lr=0.05, batch=100, precision="bf16")  # the last batch of an epoch is shorter
    members = [(Run("resnet32", "digits", recipe, density=density), 1) for density in (0.2, 1.0)]
    train_many(members, device="cuda", graph=False)
    expected = kept.weights()
    train_many(members, device="cuda", graph=True)
    for mine, theirs in zip(kept.weights(), expected, strict=True):
        assert_same(mine, theirs)


@pytest.mark.gpu
def test_on_a_gpu_a_member_that_diverges_leaves_the_others_alone(deep, kept):
    train_many(with_planted(deep, 0.01, 1.0), device="cuda")
    expected = kept.weights()
    planted = train_many(with_planted(deep, 0.01, 1e7), device="cuda")
    assert planted[1]["diverged"]
    for place in (0, 2):
        assert_same(kept.weights()[place], expected[place])
