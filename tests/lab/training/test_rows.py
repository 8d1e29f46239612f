import json

import pytest
import torch

from contracts.states import assert_same
from orthosparse.lab.training import RECIPES, Callback, Run, recipe_for, train
from orthosparse.lab.training.checkpoint import load


class _StopAt(Callback):
    """Ends the run, as a kill would, after so many steps."""

    def __init__(self, steps):
        self.steps = steps

    def on_step(self, state):
        if state.steps_done == self.steps:
            raise KeyboardInterrupt


class _Keep(Callback):
    def on_start(self, state):
        self.started = state.steps_done

    def on_end(self, state):
        self.state = state


def _weights(folder):
    return load(folder)["model"]


def _timeless(curves):
    return {name: values for name, values in curves.items() if name != "seconds"}


MOVING = {"dynamic": "rigl", "every": 4, "mixup": 0.4}


@pytest.fixture(scope="module")
def uninterrupted(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return train(config(**MOVING), seed=1, out=folder), _weights(folder)


@pytest.mark.parametrize("stop", [1, 5, 21, 34, 42])
def test_a_run_that_was_stopped_ends_with_the_same_weights(uninterrupted, config, tmp_path, stop):
    settings, (whole, weights) = config(**MOVING), uninterrupted
    with pytest.raises(KeyboardInterrupt):
        train(settings, seed=1, out=tmp_path, checkpoint_steps=5, callbacks=[_StopAt(stop)])
    keep = _Keep()
    row = train(settings, seed=1, out=tmp_path, resume=True, callbacks=[keep])
    assert keep.started >= (stop - 1) // 5 * 5
    assert_same(_weights(tmp_path), weights)
    assert _timeless(row["curves"]) == _timeless(whole["curves"])
    assert row["test_accuracy"] == whole["test_accuracy"]


def test_the_metrics_say_how_the_run_ended(config, tmp_path):
    row = train(config(), 7, out=tmp_path)
    assert json.loads(json.dumps(row)) == row
    assert row["diverged"] is False
    assert row["density"] == pytest.approx(0.3, abs=1e-3)
    assert 0.5 < row["test_accuracy"] < 1
    assert row["epochs"] == 2 == len(row["curves"]["loss"])
    assert row["curves"].keys() >= {"lr", "accuracy", "validation_accuracy", "gradient_norm", "seconds"}
    assert row["train_seconds"] > row["resumed_seconds"] == 0
    assert row["parameters"] == 64 * 32 + 32 + 32 * 32 + 32 + 32 * 10 + 10


def test_the_same_seed_gives_the_same_row_and_another_one_another(config):
    first, second, other = (train(config(), seed=seed) for seed in (1, 1, 2))
    assert first["test_loss"] == second["test_loss"]
    assert first["test_loss"] != other["test_loss"]


def test_nothing_is_written_without_a_folder(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(config(epochs=1), seed=1)
    assert not list(tmp_path.iterdir())


def test_a_finished_run_is_not_repeated(config, tmp_path):
    first = train(config(), seed=1, out=tmp_path)
    keep = _Keep()
    again = train(config(), seed=1, out=tmp_path, resume=True, callbacks=[keep])
    assert keep.started == 42  # nothing is trained twice
    assert again == {**first, "resumed_seconds": first["train_seconds"]}


def test_a_folder_with_a_run_is_not_overwritten(config, tmp_path):
    train(config(), seed=1, out=tmp_path)
    with pytest.raises(ValueError, match="holds a run already; resume it"):
        train(config(), seed=1, out=tmp_path)


@pytest.mark.parametrize("finished", [True, False])
def test_resuming_with_other_settings_shows_the_differences(config, tmp_path, finished):
    if finished:
        train(config(), seed=1, out=tmp_path)
    else:
        with pytest.raises(KeyboardInterrupt):
            train(config(), seed=1, out=tmp_path, checkpoint_steps=2, callbacks=[_StopAt(5)])
    with pytest.raises(ValueError) as caught:
        train(config(lr=0.3, density=0.2), seed=2, out=tmp_path, resume=True)
    message = str(caught.value)
    for difference in ("run.recipe.lr (0.2 there, 0.3 here)", "run.density (0.3", "seed (1 there, 2 here)"):
        assert difference in message


def test_resume_without_a_checkpoint_starts_at_the_start(config, tmp_path):
    keep = _Keep()
    train(config(epochs=1), seed=1, out=tmp_path / "new", resume=True, callbacks=[keep])
    assert keep.started == 0


def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_resumed(config, tmp_path, caplog):
    whole = train(config(), seed=1, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(config(), seed=1, out=tmp_path, checkpoint_steps=5, callbacks=[_StopAt(18)])
    newest = max(tmp_path.glob("checkpoint-*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:1000])
    keep = _Keep()
    row = train(config(), seed=1, out=tmp_path, resume=True, callbacks=[keep])
    assert keep.started == 10
    assert "checkpoint-000000015.json is damaged" in caplog.text
    assert row["test_loss"] == whole["test_loss"]


def test_a_run_whose_checkpoints_are_all_damaged_never_starts_from_zero_unasked(config, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(config(), seed=1, out=tmp_path, checkpoint_steps=5, callbacks=[_StopAt(18)])
    for path in tmp_path.glob("checkpoint-*.json"):
        path.write_bytes(b"x")
    for _ in range(2):
        with pytest.raises(ValueError, match="every checkpoint in it is damaged"):
            train(config(), seed=1, out=tmp_path, resume=True)
    with pytest.raises(ValueError, match="holds a run already"):
        train(config(), seed=1, out=tmp_path)


def test_a_loss_that_is_not_finite_is_a_result_and_leaves_the_last_good_checkpoint(config, tmp_path):
    class Spoil(Callback):
        def on_step(self, state):
            if state.steps_done == 12:
                with torch.no_grad():
                    next(state.networks.network.parameters()).fill_(torch.nan)

    row = train(config(), seed=1, out=tmp_path, checkpoint_steps=5, callbacks=[Spoil()])
    assert "training stopped at epoch 1, step 13" in row["warnings"]
    assert (row["diverged"], row["diverged_epoch"], row["epochs"], row["curves"]) == (True, 1, 0, {})
    assert "test_accuracy" not in row
    tree = load(tmp_path)
    assert tree["step"] == 10
    assert all(torch.isfinite(tensor).all() for tensor in tree["model"].values())


def test_logs_hold_every_epoch_once_after_a_resume(config, tmp_path):
    settings = config(epochs=3)
    with pytest.raises(KeyboardInterrupt):
        train(settings, seed=1, out=tmp_path, checkpoint_steps=5, callbacks=[_StopAt(24)], logs=["csv", "tensorboard"])
    train(settings, seed=1, out=tmp_path, resume=True, logs=["csv", "tensorboard"])
    lines = (tmp_path / "metrics.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["epoch", "1", "2", "3"]
    assert list((tmp_path / "tensorboard").glob("events.*"))


def test_an_unknown_log_and_a_missing_one_are_said(config, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="log: expected one of csv, tensorboard, wandb; got 'mlflow'"):
        train(config(), seed=1, out=tmp_path, logs=["mlflow"])
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(ImportError, match="pip install wandb"):
        train(config(), seed=1, out=tmp_path, logs=["wandb"])


@pytest.mark.parametrize("pace", [{"checkpoint_steps": -5}, {"checkpoint_seconds": -1.0}])
def test_a_wrong_pace_of_checkpoints_is_said_before_a_folder_is_made(config, tmp_path, pace):
    with pytest.raises(ValueError, match=f"{next(iter(pace))}: expected 0 or more; got -"):
        train(config(), seed=1, out=tmp_path / "run", **pace)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("batches", [0, -1, True, 1.5])
def test_scores_need_a_batch(config, batches):
    with pytest.raises(ValueError, match=f"score_batches: expected a positive integer; got {batches}"):
        config(score_batches=batches)


@pytest.mark.parametrize(
    ("field", "value", "known"),
    [
        ("model", "resnet33", "resnet32"),
        ("data", "cifar11", "cifar10"),
        ("distribution", "ekr", "erk"),
        ("scheme", "eio", "base"),
        ("activation", "gelu", "tanh"),
        ("dynamic", "rigel", "rigl"),
    ],
)
def test_unknown_names_list_the_known_ones(field, value, known):
    names = {"model": "mlp", "data": "digits", "scheme": "base"} | {field: value}
    with pytest.raises(ValueError, match=field) as caught:
        Run(recipe=RECIPES["mlp"], **names)
    assert known in str(caught.value)
    assert repr(value) in str(caught.value)


def test_a_model_without_a_recipe_lists_those_that_have_one():
    with pytest.raises(ValueError, match=r"recipe: expected one of .*resnet32.* none for timm:resnet18"):
        recipe_for("timm:resnet18")
    with pytest.raises(ValueError, match=r"model: expected one of .*resnet32.*; got 'resnet33'"):
        recipe_for("resnet33")


def test_moving_masks_need_masks(config):
    with pytest.raises(ValueError, match="dynamic: expected a density below 1"):
        config(density=1.0, dynamic="set")


@pytest.mark.torchvision
def test_data_that_does_not_fit_the_model_is_said_before_training():
    with pytest.raises(ValueError, match="in_shape"):
        train(Run("timm:vit_tiny_patch16_224", "digits", RECIPES["mlp"], model_options={"depth": 1}), seed=1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_where_there_is_none_is_said(config):
    with pytest.raises(ValueError, match=r"device: expected cpu, as torch .* sees no CUDA GPU; got 'cuda'"):
        train(config(), seed=1, device="cuda")


@pytest.mark.gpu
def test_a_run_goes_on_on_a_gpu(config, tmp_path):
    settings = config(precision="fp32", dynamic="rigl", every=4)
    whole = train(settings, seed=1, device="cuda")
    with pytest.raises(KeyboardInterrupt):
        train(settings, seed=1, out=tmp_path, device="cuda", checkpoint_steps=5, callbacks=[_StopAt(33)])
    keep = _Keep()
    row = train(settings, seed=1, out=tmp_path, device="cuda", resume=True, callbacks=[keep])
    assert keep.started == 30
    assert row["curves"]["loss"][-1] == pytest.approx(whole["curves"]["loss"][-1], rel=0.02)
