"""The public names: the contract with everyone who imports them."""

import ast
import inspect
import re
import subprocess
import sys
import typing
from importlib import import_module
from pathlib import Path

import pytest

import orthosparse
from orthosparse import aliases, counts, givens, init, isometry
from orthosparse.dynamic import rewirer
from orthosparse.givens import task
from orthosparse.init import delta

NAMES = {
    "DISTRIBUTIONS", "SCHEMES", "BlockConv1x1", "BlockLinear", "DeployTable", "DeployedLayer", "Layer", "Report",
    "Rewirer", "ScoredMasks", "SparseConv", "SparseConv1x1", "SparseLinear", "attach", "bake", "compact",
    "densities_of",
    "deploy", "expand", "export_prune_masks", "find_layers", "givens", "import_prune_masks", "init", "isometry",
    "load_compact", "load_sparse", "masks_of", "overlap", "prune", "replace_masks", "save_compact", "sparsify",
    "to_semi_structured",
}  # fmt: skip
INIT = {"conv_orthogonal_", "delta_orthogonal_", "orthogonal_", "sparse_delta_orthogonal_", "sparse_orthogonal_"}
ISOMETRY = {"critical_point", "effective_density", "gradient_flow", "orthogonality_score", "singular_values"}


def test_the_package_exports_this_list_and_no_more():
    assert set(orthosparse.__all__) == NAMES
    assert all(hasattr(orthosparse, name) for name in NAMES)


def test_completion_after_the_package_offers_the_public_names_alone():
    assert dir(orthosparse) == sorted(NAMES)


def test_what_type_checkers_see_is_what_there_is():
    source = ast.parse(Path(orthosparse.__file__).read_text())
    seen = [alias.name for node in ast.walk(source) if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert set(seen) >= NAMES
    assert set(orthosparse._MODULES) < NAMES
    for name, home in orthosparse._MODULES.items():
        assert getattr(orthosparse, name) is getattr(import_module(f"orthosparse.{home}"), name)


@pytest.mark.parametrize(
    "first",
    ["import orthosparse.front_door", "from orthosparse.front_door import FLOORS", "from orthosparse import sparsify"],
)
def test_sparsify_is_the_function_whatever_was_imported_first(first):
    code = f"{first}\nimport orthosparse, inspect\nassert inspect.isfunction(orthosparse.sparsify)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'orthosparse' has no attribute 'sparsfy'"):
        _ = orthosparse.sparsfy


def test_importing_the_package_alone_imports_no_torch():
    code = "import sys, orthosparse, orthosparse.lab.cli; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("words", "table"),
    [
        (aliases.DistributionName, orthosparse.DISTRIBUTIONS),
        (aliases.SchemeName, orthosparse.SCHEMES),
        (aliases.FloorName, counts.FLOORS),
        (aliases.GrowthName, rewirer.GROWTH),
        (aliases.StopName, task.STOPS),
        (aliases.StartName, task.STARTS),
        (aliases.TensorFloorName, counts.TENSOR_FLOORS),
        (aliases.TapName, delta.TAPS),
    ],
)
def test_the_words_that_editors_offer_are_those_of_the_tables(words, table):
    assert set(typing.get_args(words)) == set(table)


def test_the_backends_that_editors_offer_are_those_there_are():
    with pytest.raises(ValueError, match="backend: expected one of") as error:
        givens.sample((2, 2), 2, backend="abacus")
    assert ", ".join(sorted(typing.get_args(aliases.BackendName))) in str(error.value)


def test_the_initializers_and_measures_have_their_names():
    assert {name for name in vars(init) if name.endswith("_") and not name.startswith("_")} == INIT
    assert set(isometry.__all__) >= ISOMETRY


def test_the_tables_hold_the_names_of_the_paper():
    assert set(orthosparse.DISTRIBUTIONS) == {
        "uniform", "er", "erk", "dense_ends", "snip", "snip_iterative", "grasp", "synflow", "magnitude",
    }  # fmt: skip
    assert set(orthosparse.SCHEMES) == {"base", "ai", "eoi", "sao", "scaled"}


def test_sparsify_has_the_arguments_of_the_contract():
    parameters = inspect.signature(orthosparse.sparsify).parameters
    contract = [
        "model",
        "density",
        "distribution",
        "scheme",
        "batch",
        "loss",
        "exclude",
        "gain",
        "bias_std",
        "generator",
    ]
    assert set(contract) <= set(parameters)
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in contract[2:])


def test_every_public_function_is_documented_and_annotated():
    for name in NAMES:
        entry = getattr(orthosparse, name)
        assert inspect.getdoc(entry), name
        if inspect.isfunction(entry):
            hints = inspect.signature(entry)
            assert hints.return_annotation is not inspect.Signature.empty, name
            assert all(p.annotation is not inspect.Parameter.empty for p in hints.parameters.values()), name


def test_every_public_name_has_its_place_in_the_reference():
    page = (Path(__file__).parent.parent / "docs" / "reference" / "orthosparse.md").read_text()
    pages = {"DISTRIBUTIONS", "SCHEMES", "givens", "init", "isometry"}  # pages of their own
    assert set(re.findall(r"^::: orthosparse\.\S*\.(\w+)$", page, re.MULTILINE)) >= NAMES - pages
