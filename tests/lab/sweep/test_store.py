import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import pytest
from sweep_toys import row_of

from orthosparse.lab.sweep.rows import export, read_text
from orthosparse.lab.sweep.store import Owner, Store

ELSEWHERE = Owner("another-machine", 1, "a")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "deep" / "results.sqlite")


def rows_of(toys, count):
    return [row_of(toys.pair(seed=seed), metrics={"value": seed}) for seed in range(count)]


def test_rows_come_back_as_they_were_given(store, toys):
    given = rows_of(toys, 3)
    assert [store.append(row) for row in given] == [True] * 3
    assert store.rows() == given
    assert store.names() == {(row["key"], row["seed"]) for row in given}
    assert Store(store.path).rows() == given


def test_rows_are_found_by_key(store, toys):
    first, second = row_of(toys.pair("a")), row_of(toys.pair("b"), kind="other", key='{"kind":"other"}')
    store.append(first)
    store.append(second)
    assert store.rows(keys=[first["key"]]) == [first]
    assert store.rows(keys=[]) == []


def test_the_first_row_of_a_pair_stays(store, toys):
    pair = toys.pair()
    assert store.append(row_of(pair, metrics={"value": 1}))
    assert not store.append(row_of(pair, metrics={"value": 2}))
    assert [row["metrics"] for row in store.rows()] == [{"value": 1}]


@pytest.mark.parametrize("statement", ["UPDATE rows SET body = '{}'", "DELETE FROM rows"])
def test_no_row_can_be_changed_or_removed(store, toys, statement):
    store.append(row_of(toys.pair()))
    database = sqlite3.connect(store.path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        database.execute(statement)
    database.close()


def test_a_number_that_is_not_one_is_refused_whole(store, toys):
    with pytest.raises(ValueError):
        store.append(row_of(toys.pair(), metrics={"value": float("nan")}))
    assert store.rows() == []


def test_one_claim_excludes_the_other_owner_until_it_is_released(store):
    mine = Owner.here()
    assert store.claim("k", 1, mine)
    assert store.claim("k", 1, mine)
    assert not store.claim("k", 1, ELSEWHERE)
    assert store.claim("k", 2, ELSEWHERE)
    store.release(mine, ("k", 1))
    assert store.claim("k", 1, ELSEWHERE)


def test_release_without_a_name_gives_up_all_claims_of_an_owner_and_no_others(store):
    mine = Owner.here()
    assert store.claim("k", 1, mine)
    assert store.claim("k", 2, mine)
    assert store.claim("k", 3, ELSEWHERE)
    store.release(mine)
    assert store.heartbeat(mine) == 0
    assert store.heartbeat(ELSEWHERE) == 1


def test_a_pair_with_a_row_cannot_be_claimed_and_its_claim_ends_with_the_row(store, toys):
    row, mine = row_of(toys.pair()), Owner.here()
    assert store.claim(row["key"], row["seed"], mine)
    store.append(row)
    assert store.heartbeat(mine) == 0
    assert not store.claim(row["key"], row["seed"], mine)


def test_a_claim_without_heartbeats_expires_and_one_with_them_does_not(store):
    assert store.claim("k", 1, ELSEWHERE)
    assert not store.claim("k", 1, Owner.here(), expiry=60.0)
    assert store.claim("k", 1, Owner.here(), expiry=0.0)
    store.release(Owner.here())

    assert store.claim("k", 2, ELSEWHERE)
    database = sqlite3.connect(store.path)
    database.execute("UPDATE claims SET beat = beat - 1000")
    database.commit()
    database.close()
    assert store.heartbeat(ELSEWHERE) == 1
    assert not store.claim("k", 2, Owner.here(), expiry=60.0)


def test_the_claim_of_a_process_that_is_gone_is_void_at_once(store):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    gone = Owner(Owner.here().host, child.pid, "a")
    assert gone.is_gone()
    assert store.claim("k", 1, gone)
    assert store.claim("k", 1, Owner.here())
    assert not Owner.here().is_gone()
    assert not ELSEWHERE.is_gone()


WRITER = """
import sys
from orthosparse.lab.sweep.store import Store
from sweep_toys import Toys, row_of
store, toys = Store(sys.argv[1]), Toys(sys.argv[1] + ".log")
for seed in range(100_000):
    store.append(row_of(toys.pair(seed=seed), curves={"c": [0.5] * 20_000}))
    print(seed, flush=True)
"""


def test_a_killed_writer_leaves_every_row_it_had_written_and_a_whole_store(store, toys):
    child = subprocess.Popen([sys.executable, "-c", WRITER, str(store.path)], stdout=subprocess.PIPE, text=True)
    written = [int(child.stdout.readline()) for _ in range(25)]
    os.kill(child.pid, signal.SIGKILL)
    written += [int(line) for line in child.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    child.wait()
    child.stdout.close()
    database = sqlite3.connect(store.path)
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()
    seeds = [row["seed"] for row in store.rows()]
    assert set(written) <= set(seeds)
    assert len(seeds) <= len(written) + 1  # one may have been kept but not told
    assert all(len(row["curves"]["c"]) == 20_000 for row in store.rows())
    assert store.append(row_of(toys.pair(seed=200_000)))


def test_a_database_of_another_program_is_refused_and_stays_as_it_is(tmp_path):
    path = tmp_path / "theirs.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE rows (id INTEGER)")
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"store: expected a file of results; .*theirs.sqlite is a database of anothe"):
        Store(path)
    assert path.read_bytes() == before


def test_what_is_no_store_and_what_is_of_another_version_is_refused(tmp_path):
    (tmp_path / "text").write_text("these are not the rows " * 100)
    with pytest.raises(ValueError, match="store: expected a file of results"):
        Store(tmp_path / "text")
    newer = Store(tmp_path / "newer")
    database = sqlite3.connect(newer.path)
    database.execute("PRAGMA user_version = 7")
    database.close()
    with pytest.raises(ValueError, match="version 7; this program reads 1"):
        Store(newer.path)


def test_exported_rows_merge_into_another_store_exactly_once(store, toys, tmp_path):
    for row in rows_of(toys, 4):
        store.append(row)
    text, other = tmp_path / "out" / "rows.jsonl", Store(tmp_path / "other.sqlite")
    assert export(store.rows(), text) == {text: 4}
    assert other.merge([text]).added == 4
    again = other.merge([text])
    assert (again.added, again.known, again.differing, again.problems) == (0, 4, [], [])
    assert other.rows() == store.rows()
    before = text.read_bytes()
    export(other.rows(), text)
    assert text.read_bytes() == before
    assert len(before.splitlines()) == 5


def test_a_merge_keeps_the_rows_of_the_store_and_names_those_that_differ(store, toys, tmp_path):
    store.append(row_of(toys.pair(), metrics={"value": 1}))
    other = Store(tmp_path / "other.sqlite")
    other.append(row_of(toys.pair(), metrics={"value": 2}))
    export(other.rows(), tmp_path / "rows.jsonl")
    merged = store.merge([tmp_path / "rows.jsonl"])
    assert (merged.added, merged.differing) == (0, [(*toys.pair().name, ["metrics.value (1, 2)"])])
    assert store.rows()[0]["metrics"] == {"value": 1}


def test_a_folder_gets_a_file_for_each_kind(store, toys, tmp_path):
    given = [row_of(toys.pair("a")), row_of(toys.pair("b"), kind="other", key='{"kind":"other"}', fields={})]
    for row in given:
        store.append(row)
    files = {tmp_path / "other.jsonl": 1, tmp_path / "toy.jsonl": 1}
    assert export(store.rows(), tmp_path) == files
    assert [read_text(file) for file in files] == [([given[1]], []), ([given[0]], [])]


def test_two_processes_may_make_a_store_at_the_same_time(tmp_path):
    """One waits while the other, which is not in WAL mode yet, is about to write."""
    path = tmp_path / "store.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        writing = threading.Timer(0.2, other.execute, ["COMMIT"])
        writing.start()
        assert Store(path).rows() == []
        writing.join()


def test_a_disk_that_is_full_names_the_store_and_keeps_its_rows(store, toys, small_disk):
    store.append(row_of(toys.pair("a")))
    with small_disk(2**16), pytest.raises(sqlite3.OperationalError, match=re.escape(str(store.path))):
        store.append(row_of(toys.pair("b"), curves={"c": [0.5] * 2**17}))
    assert [row["fields"]["name"] for row in store.rows()] == ["a"]
    assert store.append(row_of(toys.pair("b")))


@pytest.fixture
def text(store, toys, tmp_path):
    for row in rows_of(toys, 5):
        store.append(row)
    export(store.rows(), tmp_path / "rows.jsonl")
    return tmp_path / "rows.jsonl"


def test_of_a_file_cut_off_in_the_middle_all_whole_rows_are_kept(text, tmp_path):
    text.write_bytes(text.read_bytes()[:-40])
    fresh = Store(tmp_path / "fresh.sqlite")
    merged = fresh.merge([text])
    assert (merged.added, len(merged.problems)) == (4, 1)
    assert "line 6: not a whole row, left out" in merged.problems[0]


@pytest.mark.parametrize("damage", ["\x00\x01", "[1, 2]", '{"key": "k"}', '{"half": ', "\ud800", "NaN"])
def test_a_damaged_line_is_named_and_costs_no_other(text, tmp_path, damage):
    lines = text.read_bytes().splitlines(keepends=True)
    lines[3] = damage.encode(errors="surrogatepass") + b"\n"
    text.write_bytes(b"".join(lines))
    merged = Store(tmp_path / "fresh.sqlite").merge([text])
    assert (merged.added, len(merged.problems)) == (4, 1)
    assert "line 4" in merged.problems[0]


@pytest.mark.parametrize(
    ("part", "value"), [("seed", "1"), ("seed", True), ("seed", 2**63), ("metrics", []), ("wall_s", None), ("key", 1)]
)
def test_a_row_with_a_wrong_part_is_named_and_left_out(text, tmp_path, part, value):
    lines = text.read_text().splitlines(keepends=True)
    lines[2] = json.dumps(json.loads(lines[2]) | {part: value}) + "\n"
    text.write_text("".join(lines))
    merged = Store(tmp_path / "fresh.sqlite").merge([text])
    assert (merged.added, len(merged.problems)) == (4, 1)
    assert f"line 3: not a row ({part} is" in merged.problems[0]


def test_a_row_that_is_refused_costs_no_file_after_it(text, tmp_path):
    bad = tmp_path / "bad.jsonl"
    lines = text.read_text().splitlines(keepends=True)
    bad.write_text(lines[0] + json.dumps(json.loads(lines[1]) | {"metrics": {"together": 0}}) + "\n")
    merged = Store(tmp_path / "fresh.sqlite").merge([bad, text])
    assert (merged.added, merged.problems) == (5, [f"{bad}: line 2: not a row (metric together is 0), left out"])


def test_a_row_that_could_not_be_read_again_is_not_kept(store, toys):
    with pytest.raises(ValueError, match="row: expected one that can be read again; metric value is 'much'"):
        store.append(row_of(toys.pair(), metrics={"value": "much"}))
    assert store.rows() == []


def test_a_file_of_another_version_or_kind_is_reported_and_the_others_are_merged(text, tmp_path):
    newer, alien, empty = tmp_path / "newer.jsonl", tmp_path / "alien.jsonl", tmp_path / "empty.jsonl"
    newer.write_text(text.read_text().replace('{"orthosparse_results":1}', '{"orthosparse_results":2}', 1))
    alien.write_text("epoch,loss\n1,0.5\n")
    empty.write_text("")
    merged = Store(tmp_path / "fresh.sqlite").merge([newer, alien, empty, text])
    assert merged.added == 5
    assert len(merged.problems) == 3
    assert "version 2; this program reads 1" in merged.problems[0]
    assert "expected a file of results" in merged.problems[1]


def test_files_put_together_are_one_file(text, tmp_path, toys):
    other = Store(tmp_path / "other.sqlite")
    other.append(row_of(toys.pair("b")))
    export(other.rows(), tmp_path / "more.jsonl")
    text.write_text(text.read_text() + (tmp_path / "more.jsonl").read_text())
    merged = Store(tmp_path / "fresh.sqlite").merge([text])
    assert (merged.added, merged.problems) == (6, [])


def test_a_store_that_cannot_be_written_is_not_taken_for_another_kind_of_file(tmp_path):
    (tmp_path / "folder.sqlite").mkdir()
    with pytest.raises(
        ValueError, match=r"expected a writable file in a writable folder; got .*folder.sqlite \(unable"
    ):
        Store(tmp_path / "folder.sqlite")


def test_a_folder_that_cannot_be_made_for_a_store_is_named_with_its_option(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"store: expected a writable file in a writable folder; got .*rows.sqlite \("):
        Store(tmp_path / "file" / "rows.sqlite")
