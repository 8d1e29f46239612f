import errno
import fcntl
import json
import logging
import os
import subprocess
import sys
import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orthosparse.lab.training import checkpoint
from orthosparse.lab.training.checkpoint import (
    LOCK,
    copied,
    flatten,
    has_checkpoint,
    load,
    locked,
    save,
    tidy,
    unflatten,
)


def _tree(value):
    return {"model": {"weight": torch.full((4, 4), float(value)), "mask": torch.eye(4).bool()}, "step": value}


def _same(tree, value):
    return tree["step"] == value and torch.equal(tree["model"]["weight"], torch.full((4, 4), float(value)))


def test_what_is_saved_is_loaded_bit_for_bit(tmp_path, generator):
    tree = {
        "x": torch.randn(3, generator=generator),
        "h": torch.randn(2, generator=generator).bfloat16(),
        "t": (1, None),
    }
    tree["mask"] = torch.tensor([True, False])
    save(tmp_path, 3, tree)
    back = load(tmp_path)
    assert back["t"] == (1, None)
    assert all(torch.equal(back[name], tree[name]) for name in ("x", "h", "mask"))


def test_an_empty_folder_and_a_missing_one_hold_none(tmp_path):
    assert load(tmp_path) is None
    assert load(tmp_path / "nowhere") is None
    assert not has_checkpoint(tmp_path)


def test_the_newest_two_generations_are_kept(tmp_path):
    for steps in (5, 10, 200, 1000):
        save(tmp_path, steps, _tree(steps))
    assert sorted(path.name for path in tmp_path.glob("*.json")) == [
        "checkpoint-000000200.json",
        "checkpoint-000001000.json",
    ]
    assert len(list(tmp_path.iterdir())) == 4
    assert _same(load(tmp_path), 1000)


def _truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [_truncate, _flip, lambda path: path.write_bytes(b""), lambda path: path.unlink()])
@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(tmp_path, caplog, damage, suffix):
    save(tmp_path, 1, _tree(1))
    newest = save(tmp_path, 2, _tree(2))
    damage(newest.with_suffix(suffix))
    with caplog.at_level(logging.WARNING):
        assert _same(load(tmp_path), 1)
    missing = suffix == ".json" and not newest.exists() and not caplog.records  # no JSON: it was never there
    assert missing or "checkpoint-000000002.json is damaged" in caplog.text
    caplog.clear()
    assert _same(load(tmp_path), 1)
    assert not caplog.records  # said once


def test_a_changed_number_in_the_json_is_noticed(tmp_path, caplog):
    save(tmp_path, 1, _tree(1))
    path = save(tmp_path, 2, _tree(2))
    record = json.loads(path.read_text())
    record["state"]["step"] = 7
    path.write_text(json.dumps(record))
    assert _same(load(tmp_path), 1)
    assert "seal" in caplog.text


def _forge(path, change):
    """Change the JSON of a checkpoint, and seal it again."""
    record = json.loads(path.read_text())
    del record["seal"]
    record = change(record)
    path.write_text(record if isinstance(record, str) else json.dumps({**record, "seal": checkpoint._seal(record)}))


@pytest.mark.parametrize(
    "change",
    [
        lambda record: "[" * 10**5 + "]" * 10**5,
        lambda record: '{"state":' * 10**5 + "1" + "}" * 10**5,
        lambda record: {**record, "state": [1]},
        lambda record: {**record, "state": {"model": {"$pairs": 7}, "step": 1}},
        lambda record: {**record, "state": {"model": {"$tensor": "elsewhere"}, "step": 1}},
        lambda record: {**record, "state": {"step": 1}},
        lambda record: {**record, "state": {"model": "none", "step": 1}},
        lambda record: {name: record[name] for name in ("steps", "sha256", "state")},
    ],
)
def test_a_forged_checkpoint_is_a_damaged_one(tmp_path, caplog, change):
    parts = {"model": dict, "step": int}
    save(tmp_path, 1, _tree(1))
    _forge(save(tmp_path, 2, _tree(2)), change)
    assert _same(load(tmp_path, parts), 1)
    assert "checkpoint-000000002.json is damaged" in caplog.text


def test_a_whole_checkpoint_of_another_kind_of_run_is_refused_and_stays_as_it_is(tmp_path, caplog):
    save(tmp_path, 1, _tree(1))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="of another kind of run, as it has no slabs"):
        load(tmp_path, {"step": int}, {"slabs": list})
    assert not caplog.records
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert _same(load(tmp_path, {"step": int}, {"model": dict}), 1)


def test_a_whole_checkpoint_of_another_version_is_refused_and_stays_as_it_is(tmp_path, caplog):
    save(tmp_path, 1, _tree(1))
    _forge(save(tmp_path, 2, _tree(2)), lambda record: {**record, "format": 2})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="expected format 1; got 2: resume with the version that wrote it"):
        load(tmp_path)
    assert not caplog.records
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("size", [2**12, 2**16])
def test_a_checkpoint_that_does_not_fit_on_the_disk_is_named_and_leaves_the_one_before(tmp_path, size, small_disk):
    """A limit that the tensors pass, or their JSON alone."""
    save(tmp_path, 1, _tree(1))
    before = sorted(tmp_path.iterdir())
    tree = {"model": {"weight": torch.zeros(2**13 // 4)}, "words": "x" * 2**17}
    with small_disk(size), pytest.raises(OSError, match=r"checkpoint-000000002\.(json|safetensors)"):
        save(tmp_path, 2, tree)
    assert sorted(tmp_path.iterdir()) == before
    assert _same(load(tmp_path), 1)


def test_only_damaged_checkpoints_are_the_same_error_every_time(tmp_path, caplog):
    for steps in (1, 2):
        _truncate(save(tmp_path, steps, _tree(steps)))
    said = []
    for _ in range(3):
        with pytest.raises(ValueError, match="every checkpoint in it is damaged; remove it") as caught:
            load(tmp_path)
        said.append(str(caught.value))
        tidy(tmp_path)
        assert has_checkpoint(tmp_path)
    assert len(set(said)) == 1
    assert len(caplog.records) == 2  # each damage is said once


def test_a_later_generation_replaces_a_damaged_one_of_the_same_step(tmp_path):
    save(tmp_path, 1, _tree(1))
    _flip(save(tmp_path, 2, _tree(2)).with_suffix(".safetensors"))
    assert _same(load(tmp_path), 1)
    save(tmp_path, 2, _tree(2))
    assert _same(load(tmp_path), 2)


def test_nothing_in_a_checkpoint_is_a_pickle(tmp_path):
    path = save(tmp_path, 1, _tree(1))
    header = path.with_suffix(".safetensors").read_bytes()
    assert header[8:9] == b"{"  # safetensors: eight bytes of length, then JSON
    json.loads(path.read_bytes())


def test_tensors_without_their_json_are_tidied_away(tmp_path):
    kept = save(tmp_path, 1, _tree(1))
    save(tmp_path, 2, _tree(2)).unlink()
    tidy(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [kept.name, kept.with_suffix(".safetensors").name]


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(plain)
def test_a_tree_comes_back_through_json_as_it_was(tree):
    tensors, rest = flatten(tree)
    assert tensors == {}
    assert unflatten(tensors, json.loads(json.dumps(rest))) == tree


def test_an_optimizers_state_comes_back_with_its_tensors_and_integer_keys():
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    tensors, rest = flatten(optimizer.state_dict())
    back = unflatten(tensors, json.loads(json.dumps(rest)))
    assert back["param_groups"] == optimizer.state_dict()["param_groups"]
    assert torch.equal(back["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])


def test_anything_else_is_refused_with_its_path():
    with pytest.raises(TypeError, match="model/hook"):
        flatten({"model": {"hook": print}})


def test_copies_share_no_memory():
    tree = {"x": torch.zeros(2)}
    copy = copied(tree)
    tree["x"].fill_(1)
    assert copy["x"].tolist() == [0, 0]


def test_copies_of_tied_tensors_are_apart():
    tied = torch.zeros(2)
    copy = copied({"a": tied, "b": tied})
    assert copy["a"].data_ptr() != copy["b"].data_ptr()


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
from orthosparse.lab.training.checkpoint import locked
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
