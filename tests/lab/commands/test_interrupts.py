"""Ctrl-C in a real process: what was done is kept, and the command that is printed goes on from there."""

import gzip
import hashlib
import http.server
import json
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from orthosparse.lab import cli
from orthosparse.lab.data.sources import SOURCES, Download, Source
from orthosparse.lab.sweep.store import Store

FIXTURES = Path(__file__).parents[2] / "fixtures"


def interrupted(arguments, ready, cwd, program=("-m", "orthosparse"), number=signal.SIGINT):
    """Start the program, press Ctrl-C (or send another signal) once it is `ready`; return how to continue."""
    with subprocess.Popen(
        [sys.executable, *program, *arguments], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        end = time.monotonic() + 120
        while not ready():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end, "it never got there"
            time.sleep(0.005)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == cli.INTERRUPTED, err
    assert out == ""
    assert "Traceback" not in err
    said, _, command = err.splitlines()[-1].partition(": ")
    assert said == "interrupted; continue with"
    words = shlex.split(command)
    assert words[0] == "orthosparse"
    return words[1:]


def test_train_keeps_the_step_and_goes_on_with_resume(tmp_path, monkeypatch):
    given = "train --model mlp --data digits --density 0.3 --scheme base --epochs 80 --device cpu --out run --log csv"
    log = tmp_path / "run" / "metrics.csv"
    words = interrupted(given.split(), lambda: log.exists() and log.read_text().count("\n") > 1, tmp_path)
    assert words == [*given.split(), "--resume"]
    saved = json.loads(max((tmp_path / "run").glob("checkpoint-*.json")).read_text())
    assert saved
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 0
    (row,) = Store(tmp_path / "run" / "results.sqlite").rows()
    assert row["metrics"]["epochs"] == len(row["curves"]["loss"]) == 80


def test_paper_run_keeps_its_rows_and_goes_on_with_the_same_command(tmp_path, monkeypatch, capsys):
    given = ["paper", "run", "angles", "--smoke", "--epochs", "60", "--device", "cpu", "--store", "rows.sqlite"]
    store = tmp_path / "rows.sqlite"
    words = interrupted(given, lambda: store.exists() and Store(store).names(), tmp_path)
    assert words == given
    before = Store(store).rows()
    assert len(before) < 3
    monkeypatch.chdir(tmp_path)
    assert cli.main([*words, "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert (reported["had"], reported["run"], reported["failed"]) == (len(before), 3 - len(before), [])


@pytest.mark.parametrize("together", [[], ["--together", "3"]])
def test_paper_run_stops_cleanly_after_its_minutes_and_the_same_command_gets_further(
    tmp_path, monkeypatch, capsys, together
):
    monkeypatch.chdir(tmp_path)
    given = ["paper", "run", "angles", "--smoke", "--epochs", "100000", "--device", "cpu", "--store", "rows.sqlite"]
    given += [*together, "--json", "--minutes", "0.05"]  # three seconds, of a training of hours
    steps = [0]
    for _ in range(20):  # a busy machine may need several calls to get to the first step
        assert cli.main(given) == 0
        reported = json.loads(capsys.readouterr().out)
        assert (reported["run"], reported["failed"], len(reported["postponed"])) == (0, [], 3)
        saved = (tmp_path / "rows-runs").glob("*/checkpoint-*.json")
        steps.append(max((int(path.stem.split("-")[1]) for path in saved), default=0))
        if len(set(steps)) > 2:
            break
    assert steps == sorted(steps)
    assert len(set(steps)) > 2, steps


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_on_ray_ends_with_its_cluster_and_keeps_its_rows(tmp_path, number):
    pytest.importorskip("ray", reason="ray is not installed")
    given = ["paper", "run", "angles", "--smoke", "--epochs", "60", "--device", "cpu", "--store", "rows.sqlite"]
    given += ["--engine", "ray", "--jobs", "1"]
    store = tmp_path / "rows.sqlite"
    words = interrupted(given, lambda: store.exists() and Store(store).names(), tmp_path, number=number)
    assert words == given
    assert 1 <= len(Store(store).rows()) < 3


def test_spectra_keeps_its_rows_and_goes_on_with_the_same_command(tmp_path, monkeypatch):
    given = ["spectra", "--root", str(FIXTURES), "--limit", "24", "--ai-iterations", "20", "--out", "spectra"]
    store = tmp_path / "spectra" / "rows.sqlite"
    words = interrupted(given, lambda: store.exists() and len(Store(store).names()) > 1, tmp_path)
    assert words == given
    before = Store(store).rows()
    assert len(before) < 24
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 0
    after = {(row["key"], row["seed"]): row for row in Store(store).rows()}
    assert len(after) == 24
    assert all(after[row["key"], row["seed"]] == row for row in before)


@pytest.fixture
def slow_server():
    """A server that sends half a file and then takes its time, unless it is asked for the rest."""
    body = gzip.compress(hashlib.shake_256(b"letters").digest(800_000), mtime=0)
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            begin = int((self.headers.get("Range") or "bytes=0-")[6:-1])
            asked.append(begin)
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(len(body) - begin))
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
            self.end_headers()
            if begin:
                self.wfile.write(body[begin:])
                return
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            done.wait(60)

        def log_message(self, *words):
            del words

    done = threading.Event()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/letters.gz", body, asked
        done.set()
        server.shutdown()
        thread.join()


def test_data_keeps_what_has_come_and_goes_on_with_the_same_command(tmp_path, slow_server, monkeypatch, capsys):
    url, body, asked = slow_server
    checksum = hashlib.sha256(gzip.decompress(body)).hexdigest()
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nfrom orthosparse.lab import cli\n"
        "from orthosparse.lab.data.sources import SOURCES, Download, Source\n"
        f"SOURCES['mnist'] = Source('letters', (Download(({url!r},)),), {{'letters': {checksum!r}}})\n"
        "sys.exit(cli.main())\n"
    )
    part = tmp_path / "sets" / ".downloads" / "letters.gz.part"
    given = ["data", "mnist", "--root", "sets"]
    words = interrupted(given, lambda: part.exists() and part.stat().st_size, tmp_path, (str(program),))
    assert words == given
    came = part.stat().st_size
    source = Source("letters", (Download((url,)),), {"letters": checksum})
    monkeypatch.setitem(SOURCES, "mnist", source)
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 0
    assert capsys.readouterr().out == "mnist: fetched, verified in sets\n"
    assert asked == [0, came]
