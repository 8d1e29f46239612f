import os
import platform
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from orthosparse.lab import provenance as module
from orthosparse.lab.provenance import commit, provenance


def test_a_row_from_a_processor_names_it_and_its_cores():
    device = provenance(torch.device("cpu"))["device"]
    assert device.startswith("cpu (")
    assert device.endswith(" cores)")


def test_a_copy_without_its_history_can_be_told_its_commit(monkeypatch):
    monkeypatch.setenv("ORTHOSPARSE_COMMIT", "abc")
    assert provenance(torch.device("cpu"))["commit"] == "abc"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with a commit that holds the file; returns that commit."""
    file = tmp_path / "checkout/provenance.py"
    file.parent.mkdir()
    file.write_bytes(Path(module.__file__).read_bytes())
    monkeypatch.setattr(module, "__file__", str(file))
    monkeypatch.delenv("ORTHOSPARSE_COMMIT", raising=False)
    person = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "."], [*person, "commit", "-q", "-m", "one"], ["rev-parse", "HEAD"]):
        done = subprocess.run(["git", *command], cwd=file.parent, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_commit_says_whether_files_have_changed(checkout):
    assert commit() == checkout
    Path(module.__file__).write_text("# changed")
    assert commit() == f"{checkout}+changes"


def test_a_checkout_that_belongs_to_another_user_has_a_commit_too(checkout, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # git's own switch for its tests
    assert commit() == checkout


def test_a_worktree_that_belongs_to_another_user_has_a_commit_too(checkout, tmp_path, monkeypatch):
    tree = tmp_path / "tree"
    subprocess.run(["git", "worktree", "add", "-q", str(tree)], cwd=tmp_path / "checkout", check=True)
    monkeypatch.setattr(module, "__file__", str(tree / "provenance.py"))
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert commit() == checkout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize("linked", [False, True])
def test_the_programs_of_a_third_user_are_not_run_to_know_the_commit(checkout, tmp_path, linked):
    repository, program, ran = tmp_path / "checkout/.git", tmp_path / "program", tmp_path / "ran"
    program.write_text(f"#!/bin/sh\ntouch '{ran}'\n")
    program.chmod(0o755)
    subprocess.run(["git", "config", "core.fsmonitor", str(program)], cwd=repository.parent, check=True)
    if linked:
        repository.symlink_to(repository.rename(tmp_path / "open-to-all"))
    for path in (repository.parent, repository):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    assert commit() is None
    assert not ran.exists()
    os.chown(module.__file__, 65534, 65534)  # now the running code is theirs
    assert commit() == checkout


def test_the_commit_is_that_of_the_file_also_inside_a_git_hook(checkout, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert commit() == checkout


def test_what_is_not_installed_has_no_version(monkeypatch):
    monkeypatch.setattr("orthosparse.lab.provenance._PACKAGES", ("torch", "numpy", "no-such-package"))
    versions = provenance(torch.device("cpu"))["versions"]
    assert versions == {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "no-such-package": None,
    }
