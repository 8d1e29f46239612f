import colorsys

import torch

from orthosparse.lab.data._tint import saturate, tint, turn_hue


def pixels(generator):
    some = torch.rand(4, 3, 5, 5, generator=generator, dtype=torch.float64)
    some[0, :, 0, 0] = 0.5  # grey
    some[0, :, 0, 1] = 0.0
    some[0, :, 0, 2] = 1.0
    some[0, :, 0, 3] = torch.tensor([1.0, 1.0, 0.0])  # two largest
    return some


def test_hues_turn_as_in_colorsys(generator):
    image = pixels(generator)
    turns = torch.tensor([0.05, -0.05, 0.3, -0.7], dtype=torch.float64)
    turned = turn_hue(image, turns.view(-1, 1, 1, 1))
    for sample in range(4):
        for before, after in zip(image[sample].flatten(1).T, turned[sample].flatten(1).T, strict=True):
            hue, saturation, value = colorsys.rgb_to_hsv(*before.tolist())
            expected = colorsys.hsv_to_rgb((hue + turns[sample].item()) % 1, saturation, value)
            torch.testing.assert_close(after, torch.tensor(expected, dtype=torch.float64))


def test_saturation_blends_with_the_luma_and_clips(generator):
    image = pixels(generator)
    grey = saturate(image, torch.tensor(0.0))
    torch.testing.assert_close(grey[:, 0], 0.299 * image[:, 0] + 0.587 * image[:, 1] + 0.114 * image[:, 2])
    torch.testing.assert_close(grey[:, 0], grey[:, 2])
    torch.testing.assert_close(saturate(image, torch.tensor(1.0)), image)
    strong = saturate(image, torch.tensor(9.0))
    assert (strong.min(), strong.max()) == (0, 1)


def test_no_change_changes_nothing_and_the_order_is_each_images_own(generator):
    image = (pixels(generator) * 255).float()
    none, ones, first = torch.zeros(4), torch.ones(4), torch.tensor([0.0, 1.0, 0.0, 1.0])
    torch.testing.assert_close(tint(image, none, ones, first), image, atol=1e-3, rtol=0)
    turn, factor = torch.full((4,), 0.2), torch.full((4,), 1.8)
    both = tint(image, turn, factor, first) / 255
    small = image / 255
    hue_first = saturate(turn_hue(small, turn.view(-1, 1, 1, 1)), factor.view(-1, 1, 1, 1))
    hue_last = turn_hue(saturate(small, factor.view(-1, 1, 1, 1)), turn.view(-1, 1, 1, 1))
    torch.testing.assert_close(both[::2], hue_first[::2])
    torch.testing.assert_close(both[1::2], hue_last[1::2])
    assert not torch.allclose(hue_first, hue_last, atol=1e-2)
