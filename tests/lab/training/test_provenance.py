import json
import re

import torch

from orthosparse.lab.training import provenance as room
from orthosparse.lab.training.provenance import commit, provenance


def test_provenance_is_plain_and_whole():
    found = provenance(torch.device("cpu"))
    assert json.loads(json.dumps(found)) == found
    assert found["versions"]["torch"] == torch.__version__
    assert found["device"].startswith("cpu")


def test_a_commit_can_be_given_to_a_copy_without_its_history(monkeypatch):
    monkeypatch.setenv("ORTHOSPARSE_COMMIT", "abc")
    assert commit() == "abc"


def test_outside_of_a_checkout_there_is_no_commit(monkeypatch, tmp_path):
    monkeypatch.delenv("ORTHOSPARSE_COMMIT", raising=False)
    monkeypatch.setattr(room, "__file__", str(tmp_path / "provenance.py"))
    assert commit() is None


def test_a_commit_is_a_hash(monkeypatch):
    monkeypatch.delenv("ORTHOSPARSE_COMMIT", raising=False)
    found = commit()
    assert found is None or re.fullmatch(r"[0-9a-f]{40}(\+changes)?", found)
