"""Exported programs of compact models: in a file, and in a process that knows the operators alone."""

import copy
import subprocess
import sys

import pytest
import torch
from torch import Generator, nn

import orthosparse

FRESH = """
import sys
import torch
import orthosparse.operators

program = torch.export.load(sys.argv[1]).module()
x, y = torch.load(sys.argv[2])
torch.testing.assert_close(program(x), y)
loaded = [name for name in sys.modules if name.startswith("orthosparse.")]
assert not [name for name in loaded if name.startswith(("orthosparse.lab", "orthosparse.masking"))], loaded
"""


def compacted(structure):
    generator = Generator().manual_seed(0)
    first, rest = nn.Conv2d(16, 64, 1, stride=2), [nn.Linear(256, 64), nn.Tanh(), nn.Linear(64, 32)]
    model = nn.Sequential(first, nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(1), *rest)
    orthosparse.sparsify(model, 0.2, structure=structure, generator=generator)
    assert orthosparse.compact(model).exchanged == {"0": structure, "4": structure, "6": structure}
    return model.eval(), torch.randn(3, 16, 4, 4, generator=generator)


@pytest.mark.parametrize(("structure", "batches"), [("entries", "any"), ("block:16", "one")])
@pytest.mark.stack("export", "compact")
def test_a_program_in_a_file_runs_in_a_process_without_the_lab(tmp_path, structure, batches):
    model, x = compacted(structure)
    shapes = None if batches == "one" else ({0: torch.export.Dim.DYNAMIC},)
    program = torch.export.export(model, (x,), dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "model.pt2")
    seen = x if batches == "one" else torch.cat([x, 2 * x, -x])
    torch.save((seen, model(seen).detach()), tmp_path / "seen.pt")
    subprocess.run([sys.executable, "-c", FRESH, tmp_path / "model.pt2", tmp_path / "seen.pt"], check=True)


def test_a_program_holds_active_weights_alone():
    model, x = compacted("entries")
    program = torch.export.export(model, (x,))
    held = sum(parameter.numel() for parameter in program.parameters())
    assert held == sum(parameter.numel() for parameter in model.parameters())
    assert held < 0.3 * (16 * 64 + 256 * 64 + 64 * 32)


def test_a_baked_copy_computes_the_same_in_an_onnx_runtime(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model, x = compacted("entries")
    plain = copy.deepcopy(model)
    orthosparse.bake(plain)
    torch.onnx.export(plain, (x,), tmp_path / "model.onnx", external_data=False, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), model(x).detach())
