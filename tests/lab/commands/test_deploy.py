import json

import pytest
import torch
from torch import Generator, nn

import orthosparse
from orthosparse.lab.cli import main

NETS = """
from torch import nn

def small(classes=6):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, classes))

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(20, 16), nn.Linear(16, 20)

    def forward(self, x):
        return self.out(self.table(x))
"""
FAST = ["--threads", "1", "--no-compile"]


@pytest.fixture
def nets(tmp_path):
    path = tmp_path / "nets.py"
    path.write_text(NETS)
    return path


@pytest.fixture
def weights(tmp_path):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 6))
    orthosparse.sparsify(model, 0.1, generator=Generator().manual_seed(0))
    orthosparse.save_compact(model, tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


def test_a_run_of_train_is_deployed_with_tables_files_and_a_page(tmp_path, capsys):
    run, out = tmp_path / "run", tmp_path / "ship"
    given = ["--model", "mlp", "--data", "digits", "--density", "0.1", "--epochs", "1", "--out", str(run)]
    assert main(["train", *given]) == 0
    capsys.readouterr()
    assert main(["deploy", str(run), "--example", "2x1x8x8", *FAST, "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert all(f"fc{index}" in printed.out for index in range(1, 8))
    assert "times as fast as the fastest form of the given network" in printed.out
    assert printed.err == ""
    assert {path.name for path in out.iterdir()} == {"deployed.pt2", "model.safetensors", "deployed.html"}
    assert "Deployment of mlp" in (out / "deployed.html").read_text()


def test_a_stack_of_networks_is_refused_and_can_be_resumed_afterwards(tmp_path, capsys):
    stack = "together --data digits --depth 4 --width 16 --epochs 1 --device cpu --start erk/eoi --resume --json --out"
    assert main([*stack.split(), str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["deploy", str(tmp_path / "run"), "--example", "1x1x8x8", "--out", str(tmp_path / "ship")]) == 2
    error = capsys.readouterr().err
    assert "is of another kind of run, as it has no model: train saves one network" in error
    assert error.count("\n") == 1
    (tmp_path / "run" / "results.sqlite").unlink()
    assert main([*stack.split(), str(tmp_path / "run")]) == 0
    assert json.loads(capsys.readouterr().out)[0]["metrics"]["resumed_seconds"] > 0


def test_a_run_knows_its_number_of_classes(tmp_path, capsys):
    (tmp_path / "halves.py").write_text(
        "import numpy\n\ndef load():\n    images, labels = numpy.zeros((40, 1, 8, 8)), numpy.arange(40) % 3\n"
        "    return {'train': (images, labels), 'test': (images, labels)}\n"
    )
    run, out = tmp_path / "run", tmp_path / "ship"
    assert (
        main(["train", "--model", "mlp", "--data", f"{tmp_path}/halves.py:load", "--epochs", "1", "--out", str(run)])
        == 0
    )
    assert main(["deploy", str(run), "--example", "1x1x8x8", *FAST, "--out", str(out)]) == 0
    program = torch.export.load(out / "deployed.pt2").module()
    assert program(torch.zeros(1, 1, 8, 8)).shape == (1, 3)
    capsys.readouterr()
    assert main(["deploy", str(run), "--example", "1x1x8x8", *FAST, "--classes", "4"]) == 2
    assert "does not fit the model" in capsys.readouterr().err


def test_a_file_of_weights_and_a_function_of_a_file_give_json_and_nothing_else(tmp_path, capsys, nets, weights):
    given = ["--model", f"{nets}:small", "--example", "3x64", "--out", str(tmp_path / "ship"), "--json"]
    assert main(["deploy", str(weights), *given, *FAST]) == 0
    printed = capsys.readouterr()
    facts = json.loads(printed.out)
    assert printed.err == ""
    assert [row["layer"] for row in facts["rows"]] == ["1", "3"]
    assert facts["example"] == [3, 64]
    assert facts["chosen"] in facts["latency"]
    program = torch.export.load(tmp_path / "ship" / "deployed.pt2").module()
    assert program(torch.zeros(3, 64)).shape == (3, 6)


def test_a_model_of_tokens_is_shown_tokens(tmp_path, capsys, nets):
    model = nn.ModuleDict({"table": nn.Embedding(20, 16), "out": nn.Linear(16, 20)})
    torch.save(model.state_dict(), tmp_path / "words.pt")
    given = ["--model", f"{nets}:Words", "--example", "tokens:2x5", "--out", str(tmp_path / "ship"), "--json"]
    assert main(["deploy", str(tmp_path / "words.pt"), *given, *FAST]) == 0
    assert json.loads(capsys.readouterr().out)["example"] == [2, 5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{weights}", "--example", "1x64"], "model: expected one, as"),
        (["{weights}", "--model", "nothing", "--example", "1x1x8x8"], "model: expected one of cnn1000"),
        (["{weights}", "--model", "{nets}:small", "--example", "big"], "example: expected sides such as"),
        (["{weights}", "--model", "{nets}:small", "--example", "1x65"], "example: the model cannot take it"),
        (["{weights}", "--model", "{nets}:small", "--example", "1x64", "--classes", "7"], "path: "),
        (["{weights}", "--model", "{nets}:small", "--example", "1x64", "--classes", "0"], "classes: expected 1 or"),
        (["{weights}", "--model", "{nets}:small", "--example", "1x64", "--threads", "0"], "threads: expected 1 or"),
        (["{weights}", "--model", "{nets}:small", "--example", "1x64", "--device", "abacus"], "device: expected auto"),
        (["{weights}", "--model", "{nets}:small", "--example", "1x64", "--tolerance", "-1"], "tolerance: expected"),
        (["{weights}", "--model", "{nets}:small", "--example", "1x64", "--device", "cuda:99"], "device: expected cpu"),
        (["{nets}", "--model", "{nets}:small", "--example", "1x64"], "checkpoint: expected a state dict"),
        (["/nowhere", "--model", "{nets}:small", "--example", "1x64"], "checkpoint: expected a file or a folder"),
        (["/nowhere", "--example", "1x64"], "checkpoint: expected a file or a folder"),
        (["{weights}", "--model", "mlp", "--example", "1x1x8x8"], "path: "),
    ],
)
def test_a_wrong_argument_is_one_line_and_nothing_is_written(tmp_path, capsys, nets, weights, arguments, message):
    given = [argument.format(nets=nets, weights=weights) for argument in arguments]
    assert main(["deploy", *given, "--out", str(tmp_path / "ship")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "ship").exists()


def test_a_file_in_the_place_of_the_folder_is_said_first(capsys, weights):
    assert main(["deploy", str(weights), "--model", "mlp", "--example", "1x1x8x8", "--out", str(weights)]) == 2
    assert "out: expected a folder" in capsys.readouterr().err
