import base64
import io

import pytest
import torch
from matplotlib.image import imread

from orthosparse.lab.rendering.pictures import picture_of


def pixels_of(uri):
    return imread(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,"))))


def test_a_pixel_is_an_entry_opaque_where_active_and_coloured_by_sign():
    values = torch.tensor([[1.0, -1.0, 0.0], [0.0, 0.5, 0.0]])
    mask = torch.tensor([[True, True, True], [False, True, False]])
    pixels = pixels_of(picture_of(values, mask))
    assert pixels.shape == (2, 3, 4)
    assert (pixels[..., 3] > 0).tolist() == mask.tolist()
    red, blue = pixels[..., 0], pixels[..., 2]
    assert blue[0, 0] > red[0, 0]
    assert blue[0, 1] < red[0, 1]
    assert pixels[0, 0, 3] > pixels[1, 1, 3] > pixels[0, 2, 3] > 0  # an active zero is faint, not absent


def test_a_mask_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"mask: expected a matrix and a mask of its shape; got \(2, 2\) and \(2, 3\)"):
        picture_of(torch.eye(2), torch.ones(2, 3).bool())


def test_rules_stand_between_kernels():
    pixels = pixels_of(picture_of(torch.zeros(4, 6), torch.ones(4, 6), every=2))
    assert pixels.shape == (32, 48, 4)
    ruled = pixels[..., 3] == 1
    assert ruled.all(1).nonzero()[0].tolist() == [16]
    assert ruled.all(0).nonzero()[0].tolist() == [16, 32]
