import sys

import pytest
import torch

from orthosparse.lab.cli import main
from orthosparse.lab.optional import import_timm, torchvision_remedy


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """A timm whose import fails as it does beside a torchvision of another build."""

    def broken(message):
        (tmp_path / "timm.py").write_text(f"raise RuntimeError({message!r})\n")
        for name in [name for name in sys.modules if name.partition(".")[0] == "timm"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.syspath_prepend(tmp_path)

    return broken


@pytest.mark.parametrize(
    "command", [["inspect", "timm:resnet18"], ["train", "--model", "resnet50", "--data", "digits"]]
)
def test_a_torchvision_of_another_build_is_one_line_with_the_remedy(broken, command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    broken("operator torchvision::nms does not exist")
    assert main(command) == 2
    error = capsys.readouterr().err
    assert error == f"error: timm: {torchvision_remedy(torch.__version__)}\n"


def test_other_errors_of_the_package_are_its_own(broken):
    broken("something else")
    with pytest.raises(RuntimeError, match="something else"):
        import_timm()


@pytest.mark.parametrize("version", ["2.13.0+cu130", "2.13.0"])
def test_the_remedy_installs_the_build_of_this_torch(version):
    assert f"pip uninstall -y torchvision, then torch=={version} and torchvision" in torchvision_remedy(version)
