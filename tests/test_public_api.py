"""The public names: the contract with everyone who imports them."""

import inspect

import orthosparse
from orthosparse import init, isometry

NAMES = {
    "DISTRIBUTIONS", "SCHEMES", "Layer", "Report", "Rewirer", "bake", "densities_of", "export_prune_masks",
    "find_layers", "givens", "import_prune_masks", "init", "isometry", "load_sparse", "masks_of", "overlap",
    "replace_masks", "sparsify",
}  # fmt: skip
INIT = {"conv_orthogonal_", "delta_orthogonal_", "orthogonal_", "sparse_delta_orthogonal_", "sparse_orthogonal_"}
ISOMETRY = {"critical_point", "effective_density", "gradient_flow", "orthogonality_score", "singular_values"}


def test_the_package_exports_this_list_and_no_more():
    assert set(orthosparse.__all__) == NAMES
    assert all(hasattr(orthosparse, name) for name in NAMES)


def test_the_initializers_and_measures_have_their_names():
    assert {name for name in vars(init) if name.endswith("_") and not name.startswith("_")} == INIT
    assert set(isometry.__all__) >= ISOMETRY


def test_the_tables_hold_the_names_of_the_paper():
    assert set(orthosparse.DISTRIBUTIONS) == {
        "uniform", "er", "erk", "dense_ends", "snip", "snip_iterative", "grasp", "synflow", "magnitude",
    }  # fmt: skip
    assert set(orthosparse.SCHEMES) == {"base", "ai", "eoi", "sao"}


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
