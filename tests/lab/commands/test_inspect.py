import html
import json
import re
import sys
from pathlib import Path

import pytest

from orthosparse.lab.cli import main


def test_a_built_in_model_on_data_gives_tables_and_a_page(tmp_path, capsys):
    arguments = ["--data", "digits", "--density", "0.2", "--activation", "tanh", "--out", str(tmp_path)]
    assert main(["inspect", "mlp", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "8 training samples of digits" in printed
    assert all(f"fc{index}" in printed for index in range(1, 8))
    assert all(start in printed for start in ("dense", "base", "EOI"))
    assert "Tanh: critical at gain 1.0247" in printed
    page = (tmp_path / "mlp.html").read_text()
    assert "://" not in page
    assert page.count("<svg") == 4


def test_a_function_of_a_file_gives_json_and_nothing_else(tmp_path, capsys):
    (tmp_path / "nets.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.body = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())\n"
        "        self.head = nn.Linear(8 * 16, 6)\n"
        "    def forward(self, x):\n"
        "        return x, self.head(self.body(x))\n"
    )
    given = ["--input", "2x4x4", "--output", "1", "--scheme", "base", "--density", "0.5", "--exclude", "head"]
    assert main(["inspect", f"{tmp_path}/nets.py:Net", *given, "--json", "--double", "--out", str(tmp_path)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert set(facts["starts"]) == {"dense", "base"}
    assert facts["starts"]["base"]["density"] == 0.5
    assert len(facts["starts"]["base"]["singular_values"]["values"][0]) == 6
    assert "Gaussian" in facts["inputs"]
    assert facts["activation"] == "ReLU"
    assert not facts["critical_point"]["isometry"]
    assert Path(facts["page"]).exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "model: expected one of cnn1000"),
        (["mlp", "--density", "2"], "density: expected"),
        (["mlp", "--scheme", "magic"], "scheme: expected one of"),
        (["mlp", "--mode", "sleep"], "mode: expected one of calibrated, eval, train"),
        (["mlp", "--input", "big"], "input: expected sides such as 3x224x224"),
        (["mlp", "--data", "mnist", "--root", "/nowhere"], "orthosparse data mnist --root /nowhere"),
        (["mlp", "--option", "x"], "option: expected NAME=VALUE"),
        (["mlp", "--samples", "0"], "samples: expected 1 or more; got 0"),
        (["mlp", "--data", "digits", "--samples", "-3"], "samples: expected 1 or more; got -3"),
        (["mlp", "--spectrum-samples", "0"], "spectrum_samples: expected 1 or more; got 0"),
        (["mlp", "--spectrum-samples", "9"], "spectrum_samples: expected at most the 8 of --samples; got 9"),
        (["mlp", "--steps", "0"], "steps: expected 1 or more; got 0"),
        (["mlp", "--classes", "0"], "classes: expected 1 or more; got 0"),
        (["mlp", "--data", "digits", "--input", "3x4x4"], "input: expected 1x8x8, the shape of digits; got 3x4x4"),
        (["mlp", "--data", "digits", "--classes", "3"], "classes: expected at least 10, as digits has; got 3"),
        (
            ["mlp", "--data", "digits", "--input", "tokens:8"],
            "input: expected 1x8x8, the shape of digits; got tokens:8",
        ),
        (["mlp", "--input", "tokens:8"], "input: expected CHANNELSxHEIGHTxWIDTH for mlp; got tokens:8"),
    ],
)
def test_a_wrong_argument_is_one_line(tmp_path, capsys, arguments, message):
    assert main(["inspect", *arguments, "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_model_of_a_file_needs_an_output_for_every_class_of_the_data(tmp_path, capsys):
    (tmp_path / "nets.py").write_text(
        "from torch import nn\ndef small():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4))\n"
    )
    given = ["--data", "digits", "--input", "1x8x8", "--out", str(tmp_path / "out")]
    assert main(["inspect", f"{tmp_path}/nets.py:small", *given]) == 2
    assert "classes: expected at least 10, as digits has; got 4" in capsys.readouterr().err


FILES = {
    "pieces.py": (
        "from torch import nn\ndef block(width):\n    return nn.Sequential(nn.Linear(width, width), nn.Tanh())\n"
    ),
    "nets.py": (
        "from torch import nn\n"
        "from pieces import block\n"
        "def language(classes=9):\n"
        "    return nn.Sequential(nn.Embedding(9, 8), block(8), nn.Linear(8, classes))\n"
        "def segmenter():\n"
        "    return nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.Hardsigmoid(), nn.Conv2d(8, 3, 1))\n"
    ),
}


@pytest.fixture
def nets(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.parametrize(
    ("name", "options", "source"),
    [
        ("language", ["--input", "tokens:5"], "random tokens out of 9"),
        ("segmenter", ["--input", "2x6x6"], "Gaussian inputs"),
    ],
)
def test_models_of_tokens_and_of_pixels_are_inspected_from_files_that_import_others(
    nets, capsys, name, options, source
):
    assert main(["inspect", f"nets.py:{name}", *options, "--density", "0.5", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert source in facts["inputs"]
    for start in facts["starts"].values():
        assert start["effective_density"] <= start["density"]
        assert start["gradient_norm"] > 0


def test_the_foot_of_the_page_repeats_the_page(nets, tmp_path):
    given = ["nets.py:language", "--input", "tokens:5", "--classes", "7", "--option", "tap=random", "--exclude", "2"]
    assert main(["inspect", *given, "--density", "0.5", "--double", "--out", "first"]) == 0
    page = (tmp_path / "first" / "nets-py-language.html").read_text()
    line = re.search(r"orthosparse (inspect nets.py:language .*?); commit", page)[1]
    assert main([*html.unescape(line).split(), "--out", "second"]) == 0
    again = (tmp_path / "second" / "nets-py-language.html").read_text()
    dated = re.compile(r"\d{4}-\d\d-\d\dT?[\d:+ ]*")
    assert dated.sub("", again) == dated.sub("", page)
