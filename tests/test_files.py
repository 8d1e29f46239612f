import errno
import os
from pathlib import Path

import pytest

from orthosparse import files
from orthosparse.files import write_atomically


def test_the_new_content_replaces_the_old_one(tmp_path):
    path = tmp_path / "file"
    for data in (b"old", b"new"):
        write_atomically(path, data)
        assert path.read_bytes() == data
    assert [left.name for left in tmp_path.iterdir()] == ["file"]


def test_a_link_to_a_file_stays_one(tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"old")
    (tmp_path / "link").symlink_to("elsewhere")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "elsewhere").read_bytes() == b"new"
    assert len([*tmp_path.iterdir()]) == 2


def test_a_pipe_takes_the_content_and_stays_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        write_atomically(pipe, b"content")
        assert reader.read() == b"content"
    assert pipe.is_fifo()


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_write_that_is_stopped_leaves_the_old_file_and_no_draft(tmp_path, monkeypatch, moment):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def die(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(*((files.os, "fsync") if moment == "fsync" else (Path, "replace")), die)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new content")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert [left.name for left in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("old", [None, b"old"])
def test_a_file_that_does_not_fit_is_named_and_leaves_no_part(tmp_path, small_disk, old):
    path = tmp_path / "result.jsonl"
    if old is not None:
        path.write_bytes(old)
    with small_disk(2**16), pytest.raises(OSError, match=r"result\.jsonl") as caught:
        write_atomically(path, bytes(2**17))
    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == str(path)
    assert {left.name: left.read_bytes() for left in tmp_path.iterdir()} == ({} if old is None else {path.name: old})


def test_a_folder_that_cannot_be_read_takes_files(tmp_path, monkeypatch):
    def refuse(path, flags):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))  # root may read every folder

    monkeypatch.setattr(files.os, "open", refuse)
    write_atomically(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"
