"""The one gather against a slow, independent way: pad, crop, flip and rotate each image by itself."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from orthosparse.lab.data import Augmentation, load
from orthosparse.lab.data._gather import draw_plan, gather

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
