import pytest
import torch

from orthosparse.lab.experiments.mask_picture import MaskPicture


@pytest.mark.parametrize("scheme", ["eoi", "sao"])
def test_a_picture_holds_the_mask_and_the_values_on_it(scheme):
    metrics = MaskPicture(scheme, 16, 0.25).run(1)
    mask = torch.tensor(metrics["curves"]["mask"]).view(metrics["rows"], metrics["columns"])
    values = torch.tensor(metrics["curves"]["values"]).view_as(mask)
    assert mask.unique().tolist() == [0, 1]
    assert mask.sum() == metrics["count"] == 64
    assert torch.equal(values * mask, values)
    assert torch.allclose(values @ values.T, torch.eye(16), atol=1e-5)


def test_sao_is_regular_and_eoi_is_not():
    def degrees(scheme):
        return torch.tensor(MaskPicture(scheme, 16, 0.25).run(1)["curves"]["mask"]).view(16, 16).sum(0).unique()

    assert degrees("sao").tolist() == [4]
    assert len(degrees("eoi")) > 1
