import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from orthosparse.lab.names import TABLES, check_name, load_function, names_of, taken


@pytest.mark.parametrize("option", TABLES)
def test_the_names_read_from_the_source_are_those_of_the_table(option):
    path, table = TABLES[option]
    module = importlib.import_module(
        "orthosparse." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    )
    assert list(names_of(option)) == list(getattr(module, table))


def test_a_wrong_name_is_answered_with_the_names_there_are():
    with pytest.raises(ValueError, match=r"scheme: expected one of ai, base, eoi, .*; got 'magic'"):
        check_name("scheme", "magic")


def test_a_name_that_was_entered_while_the_program_runs_is_known(monkeypatch):
    from orthosparse import SCHEMES

    monkeypatch.setitem(SCHEMES, "mine", SCHEMES["base"])
    check_name("scheme", "mine")


def test_experiments_are_described_without_torch():
    code = "import sys; from orthosparse.lab.paper import ITEMS; [i.experiments() for i in ITEMS.values()]"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print('torch' in sys.modules)"], capture_output=True, text=True
    )
    assert done.stdout.strip() == "False", done.stderr


@pytest.fixture(autouse=True)
def as_before(monkeypatch, tmp_path):
    """The modules of a test's own folder are taken away after it; the package's may not be imported twice."""
    known = set(sys.modules)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in set(sys.modules) - known:
        if tmp_path in Path(getattr(sys.modules[name], "__file__", None) or "").parents:
            del sys.modules[name]


def test_a_file_may_import_what_lies_beside_it(tmp_path):
    (tmp_path / "blocks_of_mine.py").write_text("SIDE = 7\n")
    (tmp_path / "net.py").write_text("import blocks_of_mine\ndef build():\n    return blocks_of_mine.SIDE\n")
    assert load_function(f"{tmp_path}/net.py:build", "model")() == 7


def test_a_file_may_import_what_lies_beside_it_when_the_function_runs(tmp_path):
    (tmp_path / "late_blocks.py").write_text("SIDE = 8\n")
    (tmp_path / "net.py").write_text("def build():\n    from late_blocks import SIDE\n    return SIDE\n")
    assert load_function(f"{tmp_path}/net.py:build", "model")() == 8


def test_a_file_in_a_package_may_import_by_dots(tmp_path):
    folder = tmp_path / "my_package" / "nets"
    folder.mkdir(parents=True)
    for each in (folder, folder.parent):
        (each / "__init__.py").touch()
    (folder.parent / "sizes.py").write_text("SIDE = 9\n")
    (folder / "net.py").write_text("from ..sizes import SIDE\ndef build():\n    return SIDE\n")
    assert load_function(f"{folder}/net.py:build", "model")() == 9


def test_a_path_is_relative_to_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("def build():\n    return 1\n")
    assert load_function("net.py:build", "model")() == 1


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"data: expected a file at .*none\.py"):
        load_function(f"{tmp_path}/none.py:make", "data")
    (tmp_path / "net.py").write_text("def build():\n    return 1\nnumber = 1\n")
    with pytest.raises(ValueError, match=r"model: expected a function of .*net\.py \(build\); got 'number'"):
        load_function(f"{tmp_path}/net.py:number", "model")


def test_a_function_is_given_what_it_takes():
    assert taken(lambda classes, **rest: None, classes=3, in_shape=(2,), activation=None) == {
        "classes": 3,
        "in_shape": (2,),
    }
    assert taken(lambda: None, classes=3) == {}
