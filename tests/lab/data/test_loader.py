import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from orthosparse.lab.data import Augmentation, Files, Loader, Normalisation, Plan, Split, load
from orthosparse.lab.data.loader import draw_plan, gather

IMAGES = load("cifar10", Path(__file__).parents[2] / "fixtures").train.images


def slowly(image, moves, augmentation, angle=0.0):
    pad, mode = augmentation.pad, {"reflect": "reflect", "zero": "constant"}[augmentation.pad_mode]
    _, top, left, flip = moves.tolist()
    wide = np.pad(image.numpy(), ((0, 0), (pad, pad), (pad, pad)), mode=mode)
    cut = wide[:, top : top + image.shape[1], left : left + image.shape[2]]
    cut = cut[:, :, ::-1] if flip else cut
    turned = [Image.fromarray(np.ascontiguousarray(plane)).rotate(math.degrees(angle)) for plane in cut]
    return torch.from_numpy(np.stack([np.asarray(plane) for plane in turned]))


def plan_of(augmentation, seed=0, epoch=0, samples=None):
    return draw_plan(samples or len(IMAGES), augmentation, seed=seed, augment_seed=seed, epoch=epoch)


@pytest.mark.parametrize("mode", ["reflect", "zero"])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("pad", [0, 1, 4])
def test_crops_and_flips_are_those_of_numpy(mode, flip, pad):
    augmentation = Augmentation(pad=pad, pad_mode=mode, flip=flip)
    plan = plan_of(augmentation)
    for moves, image in zip(plan.moves, gather(IMAGES, plan, augmentation), strict=True):
        assert torch.equal(image, slowly(IMAGES[moves[0]], moves, augmentation))


@given(height=st.integers(2, 9), width=st.integers(2, 9), data=st.data())
def test_images_of_any_shape_are_cropped_right(height, width, data):
    pad = data.draw(st.integers(0, min(height, width) - 1))
    augmentation = Augmentation(pad=pad, flip=True)
    images = torch.arange(5 * height * width).remainder(251).to(torch.uint8).view(5, 1, height, width)
    plan = plan_of(augmentation, samples=5)
    for moves, image in zip(plan.moves, gather(images, plan, augmentation), strict=True):
        assert torch.equal(image, slowly(images[moves[0]], moves, augmentation))


@pytest.mark.parametrize("mode", ["reflect", "zero"])
def test_rotations_are_those_of_pillow(mode):
    augmentation = Augmentation(pad=4, pad_mode=mode, flip=True, rotation=30)
    plan = plan_of(augmentation)
    for moves, tints, image in zip(plan.moves, plan.tints, gather(IMAGES, plan, augmentation), strict=True):
        expected = slowly(IMAGES[moves[0]], moves, augmentation, tints[0].item())
        # Pillow works in fixed point: a coordinate on the edge between two pixels may fall to either.
        assert (image != expected).float().mean() < 0.005


def test_every_crop_and_both_sides_are_drawn_about_equally_often():
    moves = plan_of(Augmentation(pad=4, flip=True), samples=81_000).moves
    counts = torch.bincount(moves[:, 1] * 9 + moves[:, 2], minlength=81)
    # 1000 expected of each; five standard deviations are 158.
    assert counts.min() > 842
    assert counts.max() < 1158
    assert abs(moves[:, 3].double().mean().item() - 0.5) < 0.01


def test_angles_hues_and_saturations_fill_their_ranges():
    tints = plan_of(Augmentation(hue=0.05, saturation=0.1, rotation=10), samples=10_000).tints
    for column, low, high in ((0, -math.radians(10), math.radians(10)), (1, -0.05, 0.05), (2, 0.9, 1.1)):
        span = high - low
        assert low <= tints[:, column].min() < low + span / 100
        assert high - span / 100 < tints[:, column].max() <= high + 1e-6
    assert set(tints[:, 3].tolist()) == {0.0, 1.0}


def test_plans_depend_on_seed_and_epoch():
    augmentation = Augmentation(pad=4, flip=True)
    base = plan_of(augmentation).moves
    assert torch.equal(base, plan_of(augmentation).moves)
    for other in (plan_of(augmentation, seed=1), plan_of(augmentation, epoch=1)):
        assert not torch.equal(base, other.moves)
        assert not torch.equal(base[:, 1:], other.moves[:, 1:])


FIXTURES = Path(__file__).parents[2] / "fixtures"
CROP_FLIP = Augmentation(pad=4, flip=True)
ALL = Augmentation(pad=2, hue=0.05, saturation=0.05, flip=True, rotation=10)
RECIPES = pytest.mark.parametrize("recipe", [None, CROP_FLIP, Augmentation(pad=3, pad_mode="zero"), ALL])


@pytest.fixture(scope="module")
def cifar():
    return load("cifar10", FIXTURES)


def batches(split, epoch=0, start=0, **options):
    return list(Loader(split, **{"batch": 16, "seed": 1, **options}).epoch(epoch, start))


def same(one, two):
    return len(one) == len(two) and all(
        torch.equal(a, b) for x, y in zip(one, two, strict=True) for a, b in zip(x, y, strict=True)
    )


def numbered(samples=50):
    """Images whose pixels all hold their own number."""
    labels = torch.arange(samples)
    images = labels.to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 2, 2)
    return Split(images, labels, Normalisation((0.0,), (1.0,), unit=1.0))


@RECIPES
def test_an_epoch_resumed_at_any_step_gives_the_same_batches(cifar, recipe):
    whole = batches(cifar.train, epoch=3, recipe=recipe)
    for start in range(len(whole) + 1):
        assert same(batches(cifar.train, epoch=3, start=start, recipe=recipe), whole[start:])


@RECIPES
def test_what_was_served_before_does_not_matter(cifar, recipe):
    loader = Loader(cifar.train, batch=16, recipe=recipe, seed=1)
    for epoch in (0, 1):
        list(loader.epoch(epoch))
    assert same(list(loader.epoch(5)), batches(cifar.train, epoch=5, recipe=recipe))


def test_an_epoch_holds_every_sample_once_in_an_order_of_its_own():
    split = numbered()
    orders = [torch.cat([y for _, y in batches(split, epoch)]).tolist() for epoch in range(4)]
    for order in orders:
        assert sorted(order) == list(range(50))
    assert len({tuple(order) for order in orders}) == 4
    assert orders[0] != torch.cat([y for _, y in batches(split, 0, seed=2)]).tolist()


def test_images_keep_their_labels():
    for x, y in batches(numbered(), recipe=Augmentation(pad=1, flip=True)):
        assert torch.equal(x[:, 0, 0, 0], y.float())


def test_order_and_augmentation_have_seeds_of_their_own(cifar):
    plain = batches(cifar.train)
    augmented = batches(cifar.train, recipe=CROP_FLIP)
    other = batches(cifar.train, recipe=CROP_FLIP, augment_seed=9)
    for one, two, three in zip(plain, augmented, other, strict=True):
        assert torch.equal(one[1], two[1])
        assert torch.equal(one[1], three[1])
    assert not torch.equal(augmented[0][0], other[0][0])


@RECIPES
@pytest.mark.parametrize("world", [2, 4])
def test_ranks_share_every_batch_of_one_process_and_nothing_is_seen_twice(cifar, recipe, world):
    alone = batches(cifar.train, epoch=2, recipe=recipe)
    shares = [batches(cifar.train, epoch=2, recipe=recipe, rank=rank, world=world) for rank in range(world)]
    for step, (x, y) in enumerate(alone):
        for rank in range(world):
            assert torch.equal(shares[rank][step][0], x[rank::world])
            assert torch.equal(shares[rank][step][1], y[rank::world])


def test_short_last_batches_are_kept():
    loader = Loader(numbered(), batch=16)
    assert [len(y) for _, y in loader.epoch(0)] == [16, 16, 16, 2]
    assert [loader.count(step) for step in range(len(loader))] == [16, 16, 16, 2]
    assert len(Loader(numbered(48), batch=16)) == 3
    uneven = Loader(numbered(49), batch=16, world=2, rank=1)
    assert [len(y) for _, y in uneven.epoch(0)] == [8, 8, 8, 0]
    assert uneven.count(3) == 1


def test_evaluation_neither_shuffles_nor_augments(cifar):
    served = batches(cifar.test, train=False, recipe=ALL, epoch=7)
    assert torch.equal(torch.cat([y for _, y in served]), cifar.test.labels)
    assert same(served, batches(cifar.test, train=False))


def test_a_share_copied_into_static_tensors_gathers_the_same_batch(cifar):
    loader = Loader(cifar.train, batch=16, recipe=ALL, seed=1)
    (x, y), *_ = loader.epoch(0)
    share = loader.share(0, 0)
    static = Plan(torch.empty_like(share.moves).copy_(share.moves), share.tints.clone())
    images, labels = loader.gather(static)
    assert torch.equal(images, x)
    assert torch.equal(labels, y)


def test_no_global_generator_is_read(cifar):
    before = torch.get_rng_state()
    batches(cifar.train, recipe=ALL)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.gpu
@RECIPES
def test_the_gpu_gets_the_bits_of_the_cpu(cifar, recipe):
    here, there = (batches(cifar.train, epoch=1, recipe=recipe, device=device) for device in ("cpu", "cuda"))
    for (x, y), (far, labels) in zip(here, there, strict=True):
        assert torch.equal(y, labels.cpu())
        if recipe is ALL:  # sines and tints round as the device does
            assert ((x - far.cpu()).abs() < 1e-4).float().mean() > 0.999
        else:
            assert torch.equal(x, far.cpu())


@pytest.mark.gpu
@RECIPES
def test_a_captured_graph_gathers_new_batches(cifar, recipe):
    loader = Loader(cifar.train, batch=16, recipe=recipe, seed=1, device="cuda")
    share = loader.share(0, 0)
    static = Plan(share.moves.clone(), None if share.tints is None else share.tints.clone())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, _ = loader.gather(static)
    for step, (x, _) in enumerate(loader.epoch(0)):
        if len(x) == 16:
            share = loader.share(0, step)
            static.moves.copy_(share.moves)
            if share.tints is not None:
                static.tints.copy_(share.tints)
            graph.replay()
            assert torch.equal(out, x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, r"batch: expected a multiple of world \(1\), all ranks together; got 0"),
        ({"batch": 15, "world": 2}, r"batch: expected a multiple of world \(2\).*got 15"),
        ({"world": 0}, r"batch: expected a multiple of world \(0\)"),
        ({"rank": 2, "world": 2}, "rank: expected one from 0 to 1; got 2"),
        ({"recipe": Augmentation(resized_crop=True)}, "recipe: expected no resized_crop for images in memory"),
        ({"recipe": Augmentation(pad=32)}, "recipe: expected a reflected pad below the image's side; got 32"),
    ],
)
def test_loaders_that_cannot_be_are_refused(cifar, options, message):
    with pytest.raises(ValueError, match=message):
        Loader(cifar.train, **{"batch": 16, **options})


def test_steps_outside_the_epoch_are_refused(cifar):
    loader = Loader(cifar.train, batch=16)
    with pytest.raises(ValueError, match="start: expected a step from 0 to 5; got 6"):
        list(loader.epoch(0, 6))
    with pytest.raises(ValueError, match="step: expected one from 0 to 4; got 5"):
        loader.share(0, 5)


def test_recipes_and_splits_that_cannot_be_are_refused(cifar):
    with pytest.raises(ValueError, match="pad_mode: expected reflect or zero; got 'edge'"):
        Augmentation(pad_mode="edge")
    with pytest.raises(ValueError, match="rotation: expected at least 0; got -1"):
        Augmentation(rotation=-1)
    with pytest.raises(ValueError, match="labels: expected one for each of 72 images; got 71"):
        Split(cifar.train.images, cifar.train.labels[1:], cifar.normalisation)
    files = Split(Files((Path("a.png"),), 8), torch.zeros(1, dtype=torch.int64), cifar.normalisation)
    with pytest.raises(ValueError, match="recipe: expected resized_crop and flip alone for images in files"):
        Loader(files, batch=1, recipe=CROP_FLIP)
    with pytest.raises(TypeError, match="gather: expected images in memory"):
        Loader(files, batch=1).gather(Loader(files, batch=1).share(0, 0))
