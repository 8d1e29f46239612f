import pytest

from orthosparse.lab.experiments import MaskPicture, Training
from orthosparse.lab.paper import ITEMS
from orthosparse.lab.sweep.bundles import Bundle, Together, begin, bundled
from orthosparse.lab.sweep.pairs import Pair


def perform(pairs, progress):
    raise AssertionError("not run here")


def training(depth=4, seed=1, **fields):
    return Pair(Training("mlp", "digits", model_options={"depth": depth, "width": 16}, epochs=1, **fields), seed)


def bundle(*pairs, begun=False, wanted=None):
    return Bundle(pairs, pairs if wanted is None else wanted, perform, begun)


PICTURE = Pair(MaskPicture("eoi"), 1)
A, B, C = training(density=0.5), training(), training(density=0.5, seed=2)
OTHER = training(depth=5)


def test_pairs_of_one_shape_are_bundled_in_the_place_of_the_first(tmp_path):
    units = bundled([A, PICTURE, OTHER, B, C], set(), Together(9, perform), tmp_path)
    assert units == [bundle(A, B, C), PICTURE, bundle(OTHER)]


def test_the_residual_networks_of_the_paper_are_one_bundle_of_all_densities(tmp_path):
    every = [experiment for name in ("contemporary", "contemporary_5") for experiment in ITEMS[name].experiments()]
    every = list({experiment.key(): experiment for experiment in every}.values())  # both have the dense ones
    residual, others = ([Pair(e, 1) for e in every if e.model == model] for model in ("resnet32", "vgg16c"))
    units = bundled([*others, *residual], set(), Together(99, perform), tmp_path)
    assert units == [*others, bundle(*residual)]
    assert {pair.experiment.density for pair in residual} == {0.05, 0.1, 1.0}


def test_a_bundle_has_so_many_pairs_at_most(tmp_path):
    assert bundled([A, B, C], set(), Together(2, perform), tmp_path) == [bundle(A, B), bundle(C)]
    with pytest.raises(ValueError, match="together: expected at least 1; got 0"):
        Together(0, perform)


def test_a_bundle_that_was_begun_comes_first_and_keeps_its_pairs(tmp_path):
    begin(bundle(A, C), tmp_path)
    units = bundled([B, A, C], set(), Together(9, perform), tmp_path)
    assert units == [bundle(A, C, begun=True), bundle(B)]
    assert units[0].folder == bundle(A, C).folder


def test_a_bundle_some_of_whose_rows_are_there_gives_the_others(tmp_path):
    begin(bundle(A, C), tmp_path)
    units = bundled([B, C], {A.name}, Together(9, perform), tmp_path)
    assert units == [bundle(A, C, wanted=(C,), begun=True), bundle(B)]


def test_a_bundle_of_which_not_all_is_asked_for_is_left_alone(tmp_path):
    begin(bundle(A, C), tmp_path)
    assert bundled([B, C], set(), Together(9, perform), tmp_path) == [bundle(B, C)]


def test_a_bundle_of_another_version_is_left_alone(tmp_path, caplog):
    folder = tmp_path / "together-0"
    folder.mkdir()
    (folder / "members.json").write_text('[["{\\"kind\\":\\"training\\",\\"later\\":1}", 1]]')
    assert bundled([A], set(), Together(9, perform), tmp_path) == [bundle(A)]
    assert "is not gone on with" in caplog.text
