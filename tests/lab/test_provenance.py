import platform

import numpy as np
import torch

from orthosparse.lab.provenance import provenance


def test_a_row_from_a_processor_names_it_and_its_cores():
    device = provenance(torch.device("cpu"))["device"]
    assert device.startswith("cpu (")
    assert device.endswith(" cores)")


def test_a_copy_without_its_history_can_be_told_its_commit(monkeypatch):
    monkeypatch.setenv("ORTHOSPARSE_COMMIT", "abc")
    assert provenance(torch.device("cpu"))["commit"] == "abc"


def test_what_is_not_installed_has_no_version(monkeypatch):
    monkeypatch.setattr("orthosparse.lab.provenance._PACKAGES", ("torch", "numpy", "no-such-package"))
    versions = provenance(torch.device("cpu"))["versions"]
    assert versions == {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "no-such-package": None,
    }
