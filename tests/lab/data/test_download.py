import hashlib

import pytest

from orthosparse.lab.data import download as room
from orthosparse.lab.data.download import download

DATA = bytes(range(256)) * 4000  # about a megabyte, several chunks
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(room.time, "sleep", lambda seconds: None)


@pytest.fixture
def served(server):
    server.files["set.bin"] = DATA
    return server


def test_a_file_comes_whole_and_its_progress_is_told(served, tmp_path):
    reported = []
    path = tmp_path / "new/set.bin"
    download(served.url("set.bin"), path, known_hash=SHA256, report=lambda done, total: reported.append((done, total)))
    assert path.read_bytes() == DATA
    assert reported[-1] == (len(DATA), len(DATA))
    assert [done for done, _ in reported] == sorted({done for done, _ in reported})
    assert [entry.name for entry in path.parent.iterdir()] == ["set.bin"]


def test_a_broken_download_goes_on_where_it_stopped_within_a_call(served, tmp_path):
    served.breaks, served.cut = 2, 300_000
    download(served.url("set.bin"), tmp_path / "set.bin", known_hash=SHA256)
    assert (tmp_path / "set.bin").read_bytes() == DATA
    assert served.ranges == [None, "bytes=300000-", "bytes=600000-"]


def test_a_broken_download_goes_on_in_the_next_call(served, tmp_path):
    served.breaks, served.cut = 3, 100_000
    with pytest.raises(OSError, match=r"broken off at 300000 of 1024000 bytes; what has come so far is kept"):
        download(served.url("set.bin"), tmp_path / "set.bin", known_hash=SHA256, attempts=3)
    assert not (tmp_path / "set.bin").exists()
    assert (tmp_path / "set.bin.part").stat().st_size == 300_000
    served.ranges.clear()
    download(served.url("set.bin"), tmp_path / "set.bin", known_hash=SHA256)
    assert (tmp_path / "set.bin").read_bytes() == DATA
    assert served.ranges == ["bytes=300000-"]


def test_a_server_without_ranges_sends_everything_again(served, tmp_path):
    served.breaks, served.cut, served.understands_ranges = 1, 100_000, False
    download(served.url("set.bin"), tmp_path / "set.bin", known_hash=SHA256)
    assert (tmp_path / "set.bin").read_bytes() == DATA


def test_a_part_that_is_already_whole_is_taken(served, tmp_path):
    (tmp_path / "set.bin.part").write_bytes(DATA)
    download(served.url("set.bin"), tmp_path / "set.bin", known_hash=SHA256)
    assert (tmp_path / "set.bin").read_bytes() == DATA


def test_a_part_longer_than_the_file_is_thrown_away(served, tmp_path):
    (tmp_path / "set.bin.part").write_bytes(DATA + b"more")
    download(served.url("set.bin"), tmp_path / "set.bin", known_hash=SHA256)
    assert (tmp_path / "set.bin").read_bytes() == DATA


def test_a_wrong_checksum_leaves_nothing_and_the_next_call_begins_anew(served, tmp_path):
    (tmp_path / "set.bin.part").write_bytes(b"x" * 1000)  # of another file
    with pytest.raises(ValueError, match="does not match the known hash"):
        download(served.url("set.bin"), tmp_path / "set.bin", known_hash=SHA256)
    assert not list(tmp_path.iterdir())
    download(served.url("set.bin"), tmp_path / "set.bin", known_hash=SHA256)
    assert (tmp_path / "set.bin").read_bytes() == DATA


def test_a_file_that_is_there_and_right_is_not_fetched(served, tmp_path):
    (tmp_path / "set.bin").write_bytes(DATA)
    download(served.url("set.bin"), tmp_path / "set.bin", known_hash=SHA256)
    assert served.ranges == []


def test_a_missing_file_is_not_asked_for_twice(served, tmp_path):
    with pytest.raises(OSError, match=r"other.bin: HTTP Error 404"):
        download(served.url("other.bin"), tmp_path / "other.bin")
    assert len(served.ranges) == 1
