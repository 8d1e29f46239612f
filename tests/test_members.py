"""Functions of the user's as distribution= and scheme=: called as ours are, and what they return is checked."""

import re

import pytest
import torch
from torch import nn

import orthosparse
from contracts.states import assert_same, state_of
from orthosparse.distributions import DISTRIBUTIONS
from orthosparse.masks import ScoredMasks


def model_of():
    g = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 5))
    for parameter in model.parameters():
        nn.init.normal_(parameter, generator=g)
    return model


def first_columns(model, density, *, layers, batch, loss, generator, columns=3):
    masks = {name: torch.zeros(layer.shape, dtype=torch.bool) for name, layer in layers.items()}
    for mask in masks.values():
        mask[:, :columns] = True
    return masks


def halved(model, masks, *, layers, gain, bias_std, generator, factor=0.5):
    for layer in layers.values():
        with torch.no_grad():
            layer.parameter().mul_(factor)
    return masks


def test_a_distribution_of_ones_own_says_how_many_and_a_scheme_of_ones_own_with_what_values():
    model, dense = model_of(), model_of()
    report = orthosparse.sparsify(model, 0.3, distribution=first_columns, scheme=halved, columns=4, factor=2.0)
    assert (report.distribution, report.scheme) == ("first_columns", "halved")
    assert [row.got for row in report.rows] == [80, 20]
    assert torch.equal(model[0].weight[:, :4], 2.0 * dense[0].weight[:, :4])
    assert not model[0].weight[:, 4:].any()


def test_a_function_that_is_ours_under_its_own_name_gives_the_same_bits():
    named, given = model_of(), model_of()
    orthosparse.sparsify(named, 0.3, distribution="er", scheme="scaled", generator=torch.Generator().manual_seed(1))
    own = {"distribution": DISTRIBUTIONS["er"], "scheme": orthosparse.SCHEMES["scaled"]}
    orthosparse.sparsify(given, 0.3, **own, generator=torch.Generator().manual_seed(1))
    first, second = state_of(named), state_of(given)
    assert_same(second, first)


def test_eoi_can_be_aligned_to_places_of_ones_own():
    model = nn.Sequential(nn.Linear(16, 16))
    mask = torch.zeros(16, 16, dtype=torch.bool)
    mask[torch.arange(16), torch.arange(16).flip(0)] = True
    orthosparse.sparsify(model, 0.1, distribution=lambda model, density, **_: {"0": mask}, align="mask")
    assert torch.equal(orthosparse.masks_of(model)["0"], mask)


def test_scores_of_ones_own_choose_what_prune_keeps():
    def columns_first(model, density, *, layers, batch, loss, generator):
        scores = {name: -torch.arange(layer.shape[1]).float().expand(layer.shape) for name, layer in layers.items()}
        return ScoredMasks({name: score > -2 for name, score in scores.items()}, scores)

    model = model_of()
    report = orthosparse.prune(model, 0.5, distribution=columns_first)
    assert report.distribution == "columns_first"
    assert torch.equal(orthosparse.masks_of(model)["2"], (torch.arange(20) < 2).expand(5, 20))
    with pytest.raises(ValueError, match="expected one that scores weights; 'first_columns' draws them at random"):
        orthosparse.prune(model, 0.1, distribution=first_columns)


def test_the_floor_of_a_scheme_of_ones_own_is_met():
    def needs_rows(model, masks, *, layers, gain, bias_std, generator):
        return masks

    needs_rows.floor = lambda layer, **options: layer.shape[0]
    model = model_of()
    report = orthosparse.sparsify(model, 26 / 340, distribution="uniform", scheme=needs_rows)
    assert [(row.asked, row.got) for row in report.rows] == [(18, 20), (8, 6)]
    needs_rows.floor = lambda layer, **options: "many"
    with pytest.raises(TypeError, match="scheme: the floor of '0': expected an integer; got 'many'"):
        orthosparse.sparsify(model_of(), 0.3, scheme=needs_rows)


def returning(change):
    def distribution(model, density, **arguments):
        masks = first_columns(model, density, **arguments)
        return change(masks)

    return distribution


WRONG = [
    (lambda masks: list(masks), TypeError, "expected it to return masks by layer name; got ['0', '2'] (list)"),
    (lambda masks: {"0": masks["0"]}, ValueError, "expected it to return masks of 0, 2; got 0"),
    (lambda masks: {**masks, "x": masks["0"]}, ValueError, "expected it to return masks of 0, 2; got 0, 2, x"),
    (lambda masks: {**masks, "0": masks["0"].float()}, TypeError, "expected it to return a bool tensor for '0'"),
    (lambda masks: {**masks, "0": masks["0"].T}, ValueError, "of shape (20, 12) for '0'; got (12, 20)"),
]


@pytest.mark.parametrize(("change", "error", "message"), WRONG)
@pytest.mark.parametrize("family", ["distribution", "scheme"])
def test_what_a_function_returns_is_checked_and_the_model_is_unchanged(family, change, error, message):
    model = model_of()
    before = state_of(model)
    if family == "distribution":
        wrong = {"distribution": returning(change)}
    else:
        wrong = {"scheme": lambda model, masks, **_: change(masks)}
    with pytest.raises(error, match=re.escape(message)):
        orthosparse.sparsify(model, 0.3, **wrong)
    after = state_of(model)
    assert_same(after, before)


def test_parts_of_blocks_are_refused():
    model = nn.Sequential(nn.Linear(32, 32))
    with pytest.raises(ValueError, match=r"'first_columns': expected it to return whole blocks \(block:16\) for '0'"):
        orthosparse.sparsify(model, 0.5, structure="block:16", distribution=first_columns)


def test_a_function_that_does_not_take_what_it_is_handed_is_named():
    message = (
        "distribution: expected a function that takes layers, batch, loss, generator by keyword; f lacks batch, loss"
    )

    def f(model, density, *, layers, generator):
        raise AssertionError

    with pytest.raises(TypeError, match=message):
        orthosparse.sparsify(model_of(), 0.3, distribution=f)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"excludes": ["0"]}, r"got 'excludes' .*; did you mean 'exclude'\?"),
        ({"algin": "mask"}, r"got 'algin' .*; did you mean 'align'\?"),
        ({"sparsity": 0.9}, "sparsity: expected the density, which is 1 - sparsity: density=0.1; got sparsity=0.9"),
    ],
)
def test_an_option_that_nobody_takes_is_answered_with_what_was_meant(option, message):
    with pytest.raises(ValueError, match=message):
        orthosparse.sparsify(model_of(), 0.3, **option)


def test_an_option_that_the_scoring_does_not_take_is_refused_by_prune():
    with pytest.raises(ValueError, match=r"expected one that the distribution takes; got 'round' .*takes none\)$"):
        orthosparse.prune(model_of(), 0.3, round=3)
    with pytest.raises(ValueError, match=r"got 'rewined' .*; did you mean 'rewind'\?"):
        orthosparse.prune(model_of(), 0.3, rewined={})


def test_progress_reaches_the_members_that_take_it():
    calls = []
    sparsify = {"distribution": "synflow", "rounds": 3, "input_shape": [12], "scheme": "ai", "iterations": 50}
    orthosparse.sparsify(model_of(), 0.3, **sparsify, progress=lambda *call: calls.append(call[0]))
    assert calls == ["synflow"] * 3 + ["ai"] * 2
    orthosparse.sparsify(model_of(), 0.3, progress=True)  # erk and eoi are done before there is anything to tell


@pytest.mark.parametrize("wrong", [nn.Linear(2, 2), nn.Linear, dict, 3])
@pytest.mark.parametrize("family", ["distribution", "scheme"])
def test_modules_and_classes_are_no_members(family, wrong):
    with pytest.raises(ValueError, match=f"{family}: expected one of"):
        orthosparse.sparsify(model_of(), 0.3, **{family: wrong})


@pytest.mark.parametrize("change", [lambda score: score.T, lambda score: score.long(), lambda score: None])
def test_scores_are_checked_like_masks(change):
    def scored(model, density, *, layers, batch, loss, generator):
        scores = {name: layer.weight().abs() for name, layer in layers.items()}
        return ScoredMasks({name: score > 1 for name, score in scores.items()}, scores | {"0": change(scores["0"])})

    model = model_of()
    before = state_of(model)
    with pytest.raises(ValueError, match=r"'scored': .* floating-point scores of shape \(20, 12\) for '0'; got"):
        orthosparse.prune(model, 0.3, distribution=scored)
    assert_same(before, model.state_dict())


@pytest.mark.parametrize("progress", [False, lambda *call: None])
def test_a_function_of_ones_own_is_handed_a_function_to_report_to(progress):
    def kept(model, masks, *, layers, gain, bias_std, generator, progress):
        progress("kept", 1, 1)
        return masks

    assert orthosparse.sparsify(model_of(), 0.3, scheme=kept, progress=progress).scheme == "kept"
