import sys

import pytest

from orthosparse.lab.functions import load_function, taken


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """What a file's import leaves behind is taken away after the test."""
    known = set(sys.modules)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in set(sys.modules) - known:
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
