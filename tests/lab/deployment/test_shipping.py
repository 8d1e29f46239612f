import subprocess
import sys

import pytest
import torch
from torch import Generator, nn

import orthosparse
from contracts.states import assert_same
from orthosparse.lab.deployment.shipping import ship, write

OPTIONS = {"threads": 1, "compile": False}
FRESH = """
import sys
import torch
import orthosparse.operators

x, y = torch.load(sys.argv[2])
torch.testing.assert_close(torch.export.load(sys.argv[1]).module()(x), y, atol=1e-4, rtol=1e-4)
assert not [name for name in sys.modules if name.startswith("orthosparse.lab")]
"""


def sparse():
    layers = [nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 8)]
    model = nn.Sequential(*layers).eval()
    orthosparse.sparsify(model, 0.02, generator=Generator().manual_seed(0))
    return model


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """A network that was sent off, what it was called with, and the folder."""
    model, x = sparse(), torch.randn(1, 1024, generator=Generator().manual_seed(1))
    folder = tmp_path_factory.mktemp("ship") / "made" / "on the way"
    shipment = ship(model, x, onnx=True, **OPTIONS)
    assert not folder.exists()
    return model, x, shipment, write(shipment, folder), folder


def test_the_program_computes_the_same_in_a_process_without_the_lab(shipped, tmp_path):
    model, x, _, _, folder = shipped
    torch.save((x, model(x).detach()), tmp_path / "seen.pt")
    subprocess.run([sys.executable, "-c", FRESH, folder / "deployed.pt2", tmp_path / "seen.pt"], check=True)


def test_the_onnx_model_computes_the_same(shipped):
    onnxruntime = pytest.importorskip("onnxruntime")
    model, x, _, _, folder = shipped
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), model(x).detach(), atol=1e-4, rtol=1e-4)


def test_the_small_file_has_the_trained_weights_and_masks(shipped):
    model, _, _, sizes, folder = shipped
    other = nn.Sequential(
        *(nn.Linear(1024, 1024) if type(m) is not nn.ReLU else m for m in model[:4]), nn.Linear(1024, 8)
    )
    orthosparse.load_compact(folder / "model.safetensors", other)
    assert_same(other.state_dict(), model.state_dict())
    assert sizes["model.safetensors"] < 0.05 * 4 * 2 * 1024**2


def test_the_folder_holds_these_files_and_their_sizes_are_told(shipped):
    *_, sizes, folder = shipped
    assert sizes == {path.name: path.stat().st_size for path in folder.iterdir()}
    assert set(sizes) == {"deployed.pt2", "model.onnx", "model.safetensors"}


def test_the_network_stays_masked(shipped):
    model, *_ = shipped
    assert orthosparse.masks_of(model).keys() == {"0", "2", "4"}


def test_without_onnx_no_such_file_is_made():
    assert set(ship(sparse(), torch.zeros(1, 1024), **OPTIONS).files) == {"deployed.pt2"}
