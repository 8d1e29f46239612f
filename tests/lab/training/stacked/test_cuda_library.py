"""How our kernels in CUDA are built, kept and launched, without a GPU."""

import logging
import subprocess
from pathlib import Path

import pytest
import torch

from orthosparse.lab.training.stacked import cuda_library


def test_without_nvcc_there_are_no_kernels_and_it_is_said(monkeypatch, caplog):
    monkeypatch.setattr(cuda_library, "_nvcc", lambda: None)
    with caplog.at_level(logging.INFO):
        assert cuda_library.library("convolutions.cu", "90", "relu") is None
    assert "no nvcc" in caplog.text


def test_where_nvcc_fails_there_are_no_kernels_and_it_is_said(monkeypatch, caplog, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    broken = tmp_path / "nvcc"
    broken.write_text("#!/bin/sh\necho no such architecture >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(cuda_library, "_nvcc", lambda: str(broken))
    assert cuda_library.library("convolutions.cu", "90", "relu") is None
    assert "no such architecture" in caplog.text
    assert [path.name for path in (tmp_path / "orthosparse").iterdir()] == []


def test_where_nothing_can_be_kept_there_are_no_kernels_and_it_is_said(monkeypatch, caplog, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(cuda_library, "_nvcc", lambda: "nvcc")
    assert cuda_library.library("convolutions.cu", "90", "relu") is None
    assert "could not be built" in caplog.text


def test_kernels_are_built_once(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    built = []

    def run(command, **how):
        built.append(command)
        Path(command[-1]).write_bytes(b"a library")

    monkeypatch.setattr(subprocess, "run", run)
    first = cuda_library._built("nvcc", "convolutions.cu", ("-DACTIVATION=relu",))
    assert cuda_library._built("nvcc", "convolutions.cu", ("-DACTIVATION=relu",)) == first
    others = {("convolutions.cu", "-DACTIVATION=tanh"), ("circular.cu", "-DACTIVATION=relu")}
    found = {cuda_library._built("nvcc", source, (flag,)) for source, flag in others}
    assert first not in found
    assert len(built) == 3


def test_an_error_of_cuda_is_raised():
    with pytest.raises(RuntimeError, match=r"CUDA error 98 .* \[2, 3\]"):
        cuda_library.launch(lambda stream: 98, torch.zeros(2, 3))
