"""The table of deploy."""

import json

import pytest

from orthosparse import DeployedLayer, DeployTable


def table(**changes):
    rows = (
        DeployedLayer("fc<1>", (8, 4), 0.25, "entries", {"dense": 2e-3, "entries": 5e-4}, 4.0),
        DeployedLayer("fc2", (2, 8), 1.0, "dense", {"dense": 1e-3}, 1.0, "density 1.00"),
        DeployedLayer("spare", (2, 2), 1.0, "dense", note="not reached by the example"),
    )
    given = {
        "rows": rows,
        "latency": {"eager": 4e-3, "compiled": 3e-3, "shrunk dense": 2.5e-3, "deployed": 1.5e-3},
        "chosen": "deployed",
        "removed": {"fc<1>": 3},
        "live": 24,
        "weights": 60,
        "bytes": {"given": 2**20, "deployed": 2**19},
        "notes": ("a note",),
    }
    return DeployTable(**given | changes)


def test_the_ratio_is_to_the_fastest_form_of_the_given_network():
    assert table().ratio == pytest.approx(2.0)  # 3 ms compiled, not 4 ms eager nor 2.5 ms shrunk
    assert table(chosen="compiled").ratio == 1.0


def test_times_of_microseconds_have_three_digits():
    layer = DeployedLayer("fc", (2, 2), 1.0, "dense", {"dense": 5.6234e-6})
    assert layer.times_text() == {"dense": "0.00562 ms"}
    assert table().latency_text()["eager"] == "4.000 ms"
    assert table().given == "compiled"


def test_printed_are_forms_times_reasons_and_totals():
    lines = str(table()).splitlines()
    assert lines[2].split() == ["fc<1>", "8x4", "0.2500", "entries", "2.000", "ms", "0.500", "ms", "4.00x"]
    assert lines[4].split() == ["spare", "2x2", "1.0000", "dense", "not", "reached", "by", "the", "example"]
    assert "deployed: 2.00x the fastest form of the given network (eager 4.000 ms" in lines[6]
    assert lines[7].startswith("24 of 60 weights are not zero; dead units removed: 3; 1.0 -> 0.5 MiB")
    assert lines[8] == "a note"


def test_values_are_plain_and_html_is_escaped():
    values = json.loads(json.dumps(table().to_dict()))
    assert values["rows"][0]["times"] == {"dense": 2e-3, "entries": 5e-4}
    assert values["ratio"] == pytest.approx(2.0)
    assert "fc&lt;1&gt;" in table()._repr_html_()
