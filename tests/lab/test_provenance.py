import torch

from orthosparse.lab.provenance import provenance


def test_a_row_from_a_processor_names_it_and_its_cores():
    device = provenance(torch.device("cpu"))["device"]
    assert device.startswith("cpu (")
    assert device.endswith(" cores)")


def test_a_copy_without_its_history_can_be_told_its_commit(monkeypatch):
    monkeypatch.setenv("ORTHOSPARSE_COMMIT", "abc")
    assert provenance(torch.device("cpu"))["commit"] == "abc"
