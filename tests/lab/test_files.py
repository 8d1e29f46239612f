import errno
import fcntl
import os
import subprocess
import sys
import threading

import pytest

from orthosparse.lab.files import LOCK, locked


def test_a_locked_folder_is_in_use(tmp_path):
    folder = tmp_path / "made" / "on the way"
    with locked(folder), pytest.raises(ValueError, match=rf"out: .*on the way is in use by process {os.getpid()} on"):
        locked(folder).__enter__()
    with locked(folder):
        assert (folder / LOCK).exists()
    assert list(folder.iterdir()) == []


def test_an_error_inside_ends_the_lock(tmp_path):
    with pytest.raises(RuntimeError), locked(tmp_path):
        raise RuntimeError
    with locked(tmp_path):
        pass


PROGRAM = """
import sys, time
from pathlib import Path
from orthosparse.lab.files import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_the_lock_of_another_process_holds_until_it_is_killed(tmp_path):
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=-1, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(ValueError, match=f"in use by process {process.pid}"):
            locked(tmp_path).__enter__()
        process.kill()
    assert (tmp_path / LOCK).exists()  # nobody removed it
    with locked(tmp_path):
        pass


def test_of_many_who_lock_at_once_one_is_inside_at_a_time(tmp_path):
    inside, most, entered = [], [], []

    def work():
        for _ in range(200):
            try:
                with locked(tmp_path):
                    inside.append(1)
                    most.append(len(inside))
                    entered.append(1)
                    inside.pop()
            except ValueError:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert len(entered) >= 4


def test_a_file_system_without_locks_is_said_so(tmp_path, monkeypatch, caplog):
    def unsupported(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with locked(tmp_path):
        pass
    assert "cannot be locked (No locks available)" in caplog.text
