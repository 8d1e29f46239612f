import pytest
import torch

from orthosparse.lab.data._files import middle_box, random_box


@pytest.mark.parametrize(("width", "height"), [(500, 375), (40, 40), (60, 90)])
def test_random_parts_lie_inside_with_the_asked_areas_and_shapes(width, height, generator):
    shares = []
    for _ in range(300):
        left, top, right, bottom = random_box(width, height, generator)
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
        shares.append((right - left) * (bottom - top) / (width * height))
        # Rounding the sides to whole pixels moves the ratio a little.
        assert 0.7 < (right - left) / (bottom - top) < 1.45
    assert 0.06 < min(shares) < 0.2
    assert 0.8 < max(shares) <= 1


def test_an_image_too_narrow_for_any_draw_gives_its_middle(generator):
    left, top, right, bottom = random_box(1000, 10, generator)
    assert (top, bottom) == (0, 10)
    assert right - left == pytest.approx(40 / 3)
    assert left + right == pytest.approx(1000)


def test_the_middle_is_224_of_256_parts_of_the_shorter_side():
    left, top, right, bottom = middle_box(512, 256, 224)
    assert (left, top, right, bottom) == (144, 16, 368, 240)
    assert torch.tensor(middle_box(100, 100, 112)).diff()[1] > 0
