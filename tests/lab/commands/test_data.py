import gzip
import hashlib
import json
import shutil
from pathlib import Path

import pytest

from orthosparse.lab.cli import main
from orthosparse.lab.data.sources import SOURCES, Source

FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture
def mnist(monkeypatch):
    """The slice in the fixtures, as if it were the whole set."""
    files = {path.stem: gzip.decompress(path.read_bytes()) for path in (FIXTURES / "MNIST/raw").glob("*.gz")}
    checksums = {file: hashlib.sha256(data).hexdigest() for file, data in files.items()}
    monkeypatch.setitem(SOURCES, "mnist", Source("MNIST/raw", (), checksums, advice="Ask the librarian"))


def test_what_is_there_is_verified_and_said(mnist, tmp_path, capsys):
    shutil.copytree(FIXTURES / "MNIST", tmp_path / "MNIST")
    assert main(["data", "mnist", "digits", "--root", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert f"mnist: already there, verified in {tmp_path}" in out
    assert "digits: comes with scikit-learn" in out


def test_one_failure_does_not_stop_the_others_and_the_exit_code_tells(mnist, tmp_path, capsys):
    assert main(["data", "mnist", "digits", "--root", str(tmp_path)]) == 1
    streams = capsys.readouterr()
    assert "error: mnist: " in streams.err
    assert "missing. Ask the librarian" in streams.err
    assert "digits: comes with" in streams.out


def test_with_json_stdout_holds_what_came_of_each_set(mnist, tmp_path, capsys):
    assert main(["data", "mnist", "digits", "--root", str(tmp_path), "--json"]) == 1
    captured = capsys.readouterr()
    first, second = json.loads(captured.out)
    assert (first["name"], first["complete"]) == ("mnist", False)
    assert "Ask the librarian" in first["error"]
    assert second == {"name": "digits", "root": str(tmp_path), "complete": True, "fetched": False, "error": None}
    assert "error: mnist: " in captured.err


def test_unknown_names_are_answered_with_the_known_ones(tmp_path, capsys):
    assert main(["data", "mnist", "svhn", "--root", str(tmp_path)]) == 2
    assert "data: expected one of cifar10, cifar100, cifar10_64, digits" in capsys.readouterr().err
