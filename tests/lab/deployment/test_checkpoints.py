import copy

import pytest
import safetensors.torch
import torch
from torch import Generator, nn

import orthosparse
from contracts.states import assert_same, state_of
from orthosparse.lab.deployment.checkpoints import load_weights, run_in
from orthosparse.lab.training import checkpoint


def net(width=32):
    return nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 4))


@pytest.fixture
def trained():
    model = net()
    orthosparse.sparsify(model, 0.3, generator=Generator().manual_seed(0))
    return model


def as_run(model, folder):
    folder.mkdir()
    settings = {"run": {"model": "mlp", "activation": None, "model_options": {}}}
    checkpoint.save(folder, 3, {"model": state_of(model), "settings": settings})


KINDS = {
    "compact file": lambda model, path: orthosparse.save_compact(model, path),
    "torch.save": lambda model, path: torch.save(model.state_dict(), path),
    "torch.save, before zip files": lambda model, path: torch.save(
        model.state_dict(), path, _use_new_zipfile_serialization=False
    ),
    "inside a dict": lambda model, path: torch.save({"state_dict": model.state_dict(), "epoch": 3}, path),
    "safetensors": lambda model, path: safetensors.torch.save_file(state_of(model), path),
    "wrapped": lambda model, path: torch.save(nn.DataParallel(model).state_dict(), path),
    "folder of a run": as_run,
}


@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_masks_are_read_from_whatever_holds_them(tmp_path, trained, kind):
    path, model = tmp_path / "weights", net()
    KINDS[kind](trained, path)
    load_weights(model, path)
    loaded, expected = model.state_dict(), trained.state_dict()
    assert_same(loaded, expected)


def test_a_compact_model_is_read_as_a_masked_one(tmp_path, trained):
    small = copy.deepcopy(trained)
    orthosparse.compact(small)
    torch.save(small.state_dict(), tmp_path / "weights")
    model = net()
    load_weights(model, tmp_path / "weights")
    assert torch.equal(model[0].weight, trained[0].weight)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_another_model_are_refused_and_the_model_stays_as_it_was(tmp_path, trained, kind):
    KINDS[kind](trained, tmp_path / "weights")
    model = net(33)
    before = state_of(model)
    with pytest.raises(ValueError, match=r"(checkpoint|path): .*weights"):
        load_weights(model, tmp_path / "weights")
    assert_same(before, model.state_dict())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "folder of a run"])
def test_a_file_that_was_cut_is_refused(tmp_path, trained, kind):
    path = tmp_path / "weights"
    KINDS[kind](trained, path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match=r"(checkpoint|path): .*weights"):
        load_weights(net(), path)


@pytest.mark.parametrize("kind", ["compact file", "safetensors", "torch.save, before zip files"])
def test_a_damaged_header_is_refused(tmp_path, trained, kind):
    path = tmp_path / "weights"
    KINDS[kind](trained, path)
    data = bytearray(path.read_bytes())
    data[7] ^= 255
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"(checkpoint|path): .*weights"):
        load_weights(net(), path)


def test_code_in_a_pickle_is_not_executed(tmp_path):
    class Evil:
        def __reduce__(self):
            return print, ("executed",)

    torch.save({"0.weight": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(ValueError, match="checkpoint: expected a state dict"):
        load_weights(net(), tmp_path / "evil.pt")


@pytest.mark.parametrize("content", [[1, 2], torch.zeros(3), {"epoch": 3}])
def test_what_is_no_state_dict_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "other.pt")
    with pytest.raises(ValueError, match="checkpoint: "):
        load_weights(net(), tmp_path / "other.pt")


def test_nothing_there_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="checkpoint: expected a file or a folder"):
        load_weights(net(), tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"checkpoint: expected the folder of a run; .* holds no checkpoint"):
        load_weights(net(), tmp_path)


def test_a_run_says_which_model_it_trained(tmp_path, trained):
    as_run(trained, tmp_path / "run")
    assert run_in(tmp_path / "run")["model"] == "mlp"
    assert run_in(tmp_path / "file") is None
