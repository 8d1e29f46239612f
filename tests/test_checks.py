"""Wrong types are named, by every public function alike, before anything changes."""

import pathlib
import re

import numpy as np
import pytest
import torch
from torch import nn

import orthosparse
from contracts.states import assert_same
from orthosparse import checks, isometry

X = torch.ones(2, 6)
OF_A_MODEL = {
    "sparsify": lambda model: orthosparse.sparsify(model, 0.1),
    "find_layers": orthosparse.find_layers,
    "masks_of": orthosparse.masks_of,
    "replace_masks": lambda model: orthosparse.replace_masks(model, {}),
    "bake": orthosparse.bake,
    "load_sparse": lambda model: orthosparse.load_sparse(model, {}),
    "compact": orthosparse.compact,
    "expand": orthosparse.expand,
    "import_prune_masks": orthosparse.import_prune_masks,
    "export_prune_masks": orthosparse.export_prune_masks,
    "to_semi_structured": orthosparse.to_semi_structured,
    "Rewirer": lambda model: orthosparse.Rewirer(model, None, steps=3),
    "singular_values": lambda model: isometry.singular_values(model, X),
    "layer_singular_values": lambda model: isometry.layer_singular_values(model, X),
    "effective_density": lambda model: isometry.effective_density(model, X),
    "gradient_flow": lambda model: isometry.gradient_flow(model, None, (X, X)),
}
NO_MODELS = {
    "a string": lambda: "x",
    "nothing": lambda: None,
    "a class": lambda: nn.Linear,
    "a state dict": lambda: nn.Linear(6, 4).state_dict(),
    "parameters": lambda: [*nn.Linear(6, 4).parameters()],
    "scripted": lambda: torch.jit.script(nn.Linear(6, 4)),
    "traced": lambda: torch.jit.trace(nn.Linear(6, 4), X),
    "partly scripted": lambda: nn.Sequential(nn.Linear(6, 6), torch.jit.script(nn.Linear(6, 4))),
}


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("what", NO_MODELS)
@pytest.mark.parametrize("function", OF_A_MODEL)
def test_every_function_of_a_model_names_what_is_none(function, what):
    model = NO_MODELS[what]()
    state = model.state_dict() if isinstance(model, nn.Module) else {}
    before = {name: value.clone() for name, value in state.items()}
    with pytest.raises(TypeError, match=r"^model: expected a "):
        OF_A_MODEL[function](model)
    assert_same(before, state)


@pytest.mark.parametrize("masks", [None, nn.Linear(2, 2), [1], "x", {"0": None}, {0: torch.ones(1)}, {"0": np.ones(2)}])
def test_what_is_no_mapping_of_masks_is_named(masks):
    good = {"0": torch.ones(2, dtype=torch.bool)}
    with pytest.raises(TypeError, match=r"^masks: expected a mapping from layer names to Tensor; got "):
        orthosparse.densities_of(masks)
    with pytest.raises(TypeError, match=r"^first: expected a mapping"):
        orthosparse.overlap(masks, good)
    with pytest.raises(TypeError, match=r"^second: expected a mapping"):
        orthosparse.overlap(good, masks)


def test_a_model_in_the_place_of_masks_is_told_how_to_get_them():
    with pytest.raises(TypeError, match=r"got Sequential \(masks_of returns a model's\)$"):
        orthosparse.densities_of(nn.Sequential())


@pytest.mark.parametrize("value", [True, 1.0, "3", None, torch.ones(2), torch.ones(()), np.ones(3), [3]])
def test_what_is_no_integer_is_named(value):
    with pytest.raises(TypeError, match=r"^count: expected an integer; got "):
        checks.check_int(value, "count")


@pytest.mark.parametrize("value", [3, np.int32(3), torch.tensor(3)])
def test_integers_of_every_kind_are_taken(value):
    assert checks.check_int(value, "count") == 3


def test_integers_that_int64_does_not_hold_are_refused():
    with pytest.raises(ValueError, match=r"^count: expected an integer below 2\*\*63; got"):
        checks.check_int(2**63, "count")


@pytest.mark.parametrize("flag", ["yes", 1, None, torch.ones(2), []])
def test_flags_are_true_or_false(flag):
    model = nn.Linear(2, 2)
    with pytest.raises(TypeError, match=r"^strict: expected True or False; got "):
        orthosparse.load_sparse(model, model.state_dict(), strict=flag)


@pytest.mark.parametrize("optimizer", [None, torch.optim.SGD([torch.ones(1)]), pathlib.Path("x"), torch.optim.SGD])
def test_optimizers_are_asked_for_what_they_hold(optimizer):
    if isinstance(optimizer, torch.optim.Optimizer | None):
        checks.check_optimizer(optimizer)
    else:
        with pytest.raises(TypeError, match=r"^optimizer: expected a torch\.optim\.Optimizer"):
            checks.check_optimizer(optimizer)


def test_what_a_model_cannot_take_is_said_of_the_argument():
    model = nn.Sequential(nn.Linear(6, 4))
    for call in (isometry.singular_values, isometry.effective_density, isometry.layer_singular_values):
        with pytest.raises(ValueError, match=r"^x: the model cannot take it \(RuntimeError: "):
            call(model, torch.ones(2, 3))


def test_a_module_is_no_selector():
    model = nn.Sequential(nn.Linear(6, 4))
    with pytest.raises(TypeError, match=r"^include: expected "):
        orthosparse.sparsify(model, 0.5, include=model[0])
    with pytest.raises(TypeError, match=r"^exclude: expected "):
        orthosparse.sparsify(model, 0.5, exclude=[model[0]])


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        ([nn.Linear(2, 2), nn.Linear(2, 2)], r"\(list\): torch.nn.Sequential or torch.nn.ModuleList makes a module"),
        ("model.pt", r"\(str\): build the model first, and load the file into it"),
        ({"weight": torch.ones(2, 2)}, "build the model first, and load the state dict into it"),
        (torch.jit.script(nn.Linear(2, 2)), "make the Python module sparse, and script or trace it afterwards"),
    ],
)
def test_what_is_no_model_is_answered_with_what_to_do(model, hint):
    with pytest.raises(TypeError, match=f"(?s)model: expected a .*{hint}"):
        orthosparse.sparsify(model, 0.1)


@pytest.mark.parametrize("call", [orthosparse.sparsify, orthosparse.prune])
def test_sparsity_is_answered_with_density(call):
    with pytest.raises(
        ValueError, match=r"sparsity: expected the density, which is 1 - sparsity: density=0\.1; got sparsity=0\.9"
    ):
        call(nn.Linear(4, 4), sparsity=0.9)
    with pytest.raises(TypeError, match=r"density: expected a number in \[0, 1\]; got None"):
        call(nn.Linear(4, 4))


@pytest.mark.parametrize("scheme", orthosparse.SCHEMES)
def test_a_gain_of_zero_is_refused_by_every_scheme(scheme):
    model = nn.Sequential(nn.Linear(4, 4))
    before = model[0].weight.clone()
    with pytest.raises(
        ValueError, match="gain: expected a finite number other than 0, with which every weight would be"
    ):
        orthosparse.sparsify(model, 0.5, scheme=scheme, gain=0)
    assert torch.equal(before, model[0].weight)


def test_names_that_nearly_fit_are_suggested():
    model = nn.Sequential()
    model.add_module("encoder", nn.Linear(4, 4))
    with pytest.raises(ValueError, match=r"exclude: .*'encodr' matches none of this model; did you mean 'encoder'\?"):
        orthosparse.sparsify(model, 0.5, exclude=["encodr"])
    with pytest.raises(
        ValueError, match=r"masks: expected names among encoder.*; got 'encode'; did you mean 'encoder'\?"
    ):
        orthosparse.attach(model, {"encode": torch.ones(4, 4, dtype=torch.bool)})


def test_a_message_lists_few_of_many_names():
    model = nn.Sequential(*[nn.Linear(2, 2, bias=False) for _ in range(50)])
    with pytest.raises(ValueError, match=r"among 0, 1, 2, .*, 11 and 38 more; got 'x'$"):
        orthosparse.attach(model, {"x": torch.ones(2, 2, dtype=torch.bool)})


@pytest.mark.parametrize("call", [orthosparse.attach, orthosparse.replace_masks])
def test_a_model_in_place_of_masks_is_answered_with_masks_of(call):
    with pytest.raises(TypeError, match=r"masks: expected a mapping .*; got Linear \(masks_of returns a model's\)"):
        call(nn.Linear(2, 2), nn.Linear(2, 2))


def _fail_on_inference(call):
    with pytest.raises(ValueError, match=r"torch\.inference_mode"):
        call()


@pytest.mark.parametrize("call", [orthosparse.sparsify, orthosparse.prune])
def test_weights_that_were_made_in_inference_mode_are_refused_as_nothing_can_train_them(call):
    with torch.inference_mode():
        model = nn.Sequential(nn.Linear(4, 4))
    _fail_on_inference(lambda: call(model, 0.5))
    assert not orthosparse.masks_of(model)


def test_what_makes_parameters_or_masks_is_refused_in_inference_mode():
    dense, sparse = nn.Sequential(nn.Linear(4, 4)), nn.Sequential(nn.Linear(4, 4))
    orthosparse.sparsify(sparse, 0.5)
    state, names = sparse.state_dict(), list(dict(sparse.named_modules()))
    with torch.inference_mode():
        _fail_on_inference(lambda: orthosparse.sparsify(dense, 0.5))
        _fail_on_inference(lambda: orthosparse.prune(dense, 0.5))
        _fail_on_inference(lambda: orthosparse.attach(dense, {"0": torch.ones(4, 4, dtype=torch.bool)}))
        _fail_on_inference(lambda: orthosparse.load_sparse(dense, state))
        _fail_on_inference(lambda: orthosparse.compact(sparse))
        _fail_on_inference(lambda: orthosparse.expand(sparse))
        assert orthosparse.masks_of(sparse).keys() == {"0"}  # reading is as good as ever
    assert not orthosparse.masks_of(dense)
    assert list(dict(sparse.named_modules())) == names


def test_a_tensor_name_in_place_of_a_layer_name_is_answered_with_the_layer():
    masks = {"0.weight": torch.ones(4, 4, dtype=torch.bool)}
    with pytest.raises(ValueError, match=r"got '0\.weight'; did you mean '0'\?"):
        orthosparse.attach(nn.Sequential(nn.Linear(4, 4)), masks)


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ({"0": np.ones((4, 4), dtype=bool)}, "masks: expected a bool tensor for '0'; got ndarray"),
        ({"0": torch.ones(4, 4)}, "masks: expected a bool tensor for '0'; got torch.float32"),
        ({0: torch.ones(4, 4, dtype=torch.bool)}, "masks: expected a mapping from layer names; got the name 0 (int)"),
        ([torch.ones(4, 4)], "masks: expected a mapping from layer names; got list"),
    ],
)
def test_masks_of_a_wrong_kind_are_named_by_what_they_are(masks, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        orthosparse.attach(nn.Sequential(nn.Linear(4, 4)), masks)


def test_densities_by_number_in_place_of_name_are_refused():
    with pytest.raises(
        TypeError, match=re.escape("density: expected a mapping from layer names; got the name 0 (int)")
    ):
        orthosparse.sparsify(nn.Sequential(nn.Linear(4, 4)), {0: 0.5})


@pytest.mark.parametrize("structure", ["entries", "2:4", "block:16", "block:64", "block:1024"])
def test_known_structures_are_returned(structure):
    assert checks.check_structure(structure) == structure


@pytest.mark.parametrize(
    "wrong", ["block", "block:", "block:8", "block:48", "block:-64", "block:064", "block: 64", "4:8", "", None, 64]
)
def test_unknown_structures_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match=r"structure: expected 'entries', '2:4' or 'block:N'.*; got ") as caught:
        checks.check_structure(wrong)
    assert repr(wrong) in str(caught.value)
