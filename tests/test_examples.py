"""Every example runs at a small size, and does what its tutorial says."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import orthosparse
from contracts.states import assert_same
from orthosparse.lab.cli import main

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """What an example writes goes to a folder of its own, and the generators it seeds come back."""
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng(devices=[]):
        yield


def main_of(name):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]


def counts(model):
    return {name: int(mask.sum()) for name, mask in orthosparse.masks_of(model).items()}


def test_every_example_has_a_test_and_is_short():
    scripts = sorted(path for path in EXAMPLES.iterdir() if path.suffix in (".py", ".sh"))
    tests = Path(__file__).read_text()
    assert [path.name for path in scripts if f'"{path.stem}"' not in tests and f'"{path.name}"' not in tests] == []
    assert all(len(path.read_text().splitlines()) <= 60 for path in scripts)


def test_own_model_trains_and_keeps_its_masks_ties_and_frozen_weights():
    model, report, losses = main_of("own_model")(steps=60)
    assert [row.layer for row in report.rows] == [
        "units.0.w_in", "units.0.w_out", "units.1", "units.2.w_in", "units.2.w_out",
    ]  # fmt: skip
    assert all(row.orthogonality < 1e-5 for row in report.rows)
    assert report.left == {"embed": "embedding", "backbone.0": "frozen"}
    assert losses[-1] < losses[0] / 2
    assert sum(counts(model).values()) == report.got
    assert model.head.weight is model.embed.weight


@pytest.mark.torchvision
def test_timm_model_ends_as_a_plain_network_with_zeros():
    pytest.importorskip("timm", reason="timm is not installed")
    model, report = main_of("timm_model")(name="resnet18", size=32, steps=1)
    assert not orthosparse.masks_of(model)
    zeros = sum(int((layer.weight() == 0).sum()) for layer in orthosparse.find_layers(model, exclude=["fc"]).values())
    # Some active entries of a convolution start at zero, and one step may not have moved each of them.
    assert zeros >= report.numel - report.got


@pytest.mark.torchvision
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")  # its own
def test_hugging_face_trains_under_trainer_with_masks_that_move(tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed; transformers' Trainer needs it")
    fresh, trainer = main_of("hugging_face")(out=str(tmp_path), steps=20)
    rewirer = next(call.rewirer for call in trainer.callback_handler.callbacks if hasattr(call, "rewirer"))
    assert rewirer.updates == 1
    assert counts(fresh) == counts(trainer.model)
    assert sum(counts(fresh).values()) == round(0.2 * sum(m.numel() for m in orthosparse.masks_of(fresh).values()))
    assert torch.equal(fresh.transformer.h[0].mlp.c_fc.weight, trainer.model.transformer.h[0].mlp.c_fc.weight)


@pytest.mark.torchvision
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")  # its own
def test_lightning_module_comes_back_from_its_checkpoint_with_its_masks(tmp_path):
    pytest.importorskip("pytorch_lightning", reason="pytorch-lightning is not installed")
    model, again = main_of("lightning_module")(out=str(tmp_path), steps=20)
    ours, theirs = orthosparse.masks_of(model), orthosparse.masks_of(again)
    assert_same(ours, theirs)
    for (name, mine), other in zip(model.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(mine.cpu(), other.cpu()), name


@pytest.mark.torchvision
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")  # its own
def test_a_lightning_run_with_masks_that_move_is_resumed_from_a_checkpoint_of_any_step(tmp_path):
    pl = pytest.importorskip("pytorch_lightning", reason="pytorch-lightning is not installed")

    class Moving(main_of("lightning_module").__globals__["Classifier"]):
        state = None

        def on_train_start(self):
            self.rewirer = orthosparse.Rewirer(self.net, self.optimizers().optimizer, every=3, steps=16, seed=0)
            if self.state is not None:
                self.rewirer.load_state_dict(self.state)

        def optimizer_step(self, *args, **kwargs):
            super().optimizer_step(*args, **kwargs)
            self.rewirer.step()

        def on_save_checkpoint(self, checkpoint):
            checkpoint["rewirer"] = self.rewirer.state_dict()

        def on_load_checkpoint(self, checkpoint):
            self.state = checkpoint["rewirer"]

    def trained(checkpoint=None):
        model, each = Moving(depth=2), [(torch.eye(64)[:10], torch.arange(10))] * 32
        saves = pl.callbacks.ModelCheckpoint(tmp_path, every_n_train_steps=1, save_top_k=-1, filename="{step}")
        trainer = pl.Trainer(
            max_steps=10, accumulate_grad_batches=2, accelerator="cpu", logger=False, callbacks=[saves],
            enable_model_summary=False, enable_progress_bar=False,
        )  # fmt: skip
        torch.manual_seed(0)
        trainer.fit(model, torch.utils.data.DataLoader(each, batch_size=None), ckpt_path=checkpoint)
        return model

    whole = trained()
    assert whole.rewirer.updates == 3
    for step in (5, 6):  # before an update, and after it
        resumed = trained(tmp_path / f"step={step}.ckpt")
        assert resumed.rewirer.state_dict() == whole.rewirer.state_dict()
        for mine, other in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True):
            assert torch.equal(mine, other)


def command(*words, **environment):
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(words, capture_output=True, text=True, env=surroundings, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_distributed_ranks_agree_under_ddp_and_fsdp():
    run = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    out = command(*run, str(EXAMPLES / "distributed.py"))
    assert all(f"{how}: 5171 of 25856 weights on 2 ranks" in out for how in ("ddp", "fsdp"))


def test_rigl_moves_weights_and_resumes_half_way():
    found = main_of("rigl")(steps=160)
    assert found["updates"] == 5
    assert found["accuracy"] > 0.3
    assert all(0.1 < found[name] < 0.9 for name in ("0", "2", "4"))


def test_diagnose_sees_the_difference_between_two_starts():
    spectra = main_of("diagnose")(depth=12)
    assert spectra["base"].max < 1e-3 * spectra["eoi"].min


class TestCommands:
    """Shell scripts: what they call is noted by a stand-in, then done here, where torch is imported already."""

    @pytest.fixture
    def run(self, tmp_path):
        program, calls = tmp_path / "bin" / "orthosparse", tmp_path / "calls"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {calls}; echo >> {calls}\n')
        program.chmod(0o755)

        def run(script, *words):
            command("sh", str(EXAMPLES / script), *words, PATH=f"{program.parent}{os.pathsep}{os.environ['PATH']}")
            return [main(call.split("\n")) for call in calls.read_text().strip().split("\n\n")]

        return run

    def test_reproduce_table_writes_the_page(self, run, tmp_path):
        assert run("reproduce_table.sh", "expected_density", "--smoke") == [0, 0]
        assert "expected_density" in (tmp_path / "runs" / "expected_density" / "report.html").read_text()

    def test_sweep_on_ray_brings_the_rows_back(self, run, capsys):
        pytest.importorskip("ray", reason="ray is not installed")
        assert run("sweep_on_ray.sh", "", "expected_density", "--smoke", "--jobs", "1") == [0]
        assert "1 pair run, 0 had a row" in capsys.readouterr().out
