import json

import pytest

from orthosparse.lab.training.checkpoint import save
from orthosparse.lab.training.finished import record_of

DAMAGES = [b"{", b"", b"{}", b"[1, 2]", b"3\n", b'{"config": {}}\n', b"\xff\xfe", b'{"config": {}, "seed": 1}{']


def test_a_whole_record_is_what_was_written_and_a_missing_one_is_none(tmp_path):
    path, record = tmp_path / "result.jsonl", {"config": {"lr": 0.1}, "seed": 1, "more": [1]}
    assert record_of(path, ("config", "seed")) is None
    path.write_text(json.dumps(record) + "\n")
    assert record_of(path, ("config", "seed")) == record


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_record_beside_checkpoints_is_said_and_left_to_them(tmp_path, caplog, damage):
    save(tmp_path, 1, {"step": 1})
    path = tmp_path / "result.jsonl"
    path.write_bytes(damage)
    assert record_of(path, ("config", "seed")) is None
    (message,) = caplog.messages
    assert message.startswith(f"{path} is damaged (")
    assert message.endswith("; going on from the checkpoints beside it")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_record_with_nothing_to_go_on_from_is_an_error_that_names_it(tmp_path, damage):
    path = tmp_path / "result.jsonl"
    path.write_bytes(damage)
    with pytest.raises(ValueError, match=r"result\.jsonl: expected .* config, seed; got .*; remove it to start again"):
        record_of(path, ("config", "seed"))
    assert path.read_bytes() == damage
