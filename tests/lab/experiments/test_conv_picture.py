import torch

from orthosparse.lab.experiments.conv_picture import ConvPicture


def test_weights_stand_at_the_centre_and_the_mask_has_more_than_them():
    metrics = ConvPicture(density=0.25).run(1)
    shape = metrics["outputs"], metrics["inputs"], metrics["side"], metrics["side"]
    weights, mask = (torch.tensor(metrics["curves"][name]).view(shape) for name in ("weights", "mask"))
    assert mask.sum() == metrics["count"] == 36
    centre = weights[:, :, 1, 1]
    assert torch.count_nonzero(weights) == torch.count_nonzero(centre) == metrics["center_count"] < 36
    assert torch.equal(weights * mask, weights)
    assert torch.allclose(centre @ centre.T, torch.eye(4), atol=1e-6)
