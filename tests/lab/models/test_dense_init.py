import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from contracts.seeded import seeded
from contracts.states import assert_same, state_of
from orthosparse.lab.models import DENSE_INITS, build, dense_init
from orthosparse.layers import find_layers
from orthosparse.orthogonality import orthogonality_score

ORTHOGONAL = [kind for kind in DENSE_INITS if kind != "default"]


def small(generator, **own):
    options = {"classes": 10, "in_shape": (3, 16, 16), "depth": 8, "width": 6, "generator": generator}
    return build("cnn1000", **{**options, **own})


@pytest.mark.parametrize("kind", ["conv_orthogonal", "delta_orthogonal"])
@pytest.mark.parametrize("gain", [1.0, 1.0247])
def test_every_layer_is_orthogonal_times_the_gain(kind, gain, generator):
    model = small(generator)
    dense_init(model, kind, gain=gain, generator=generator)
    for layer in find_layers(model).values():
        assert orthogonality_score(layer.weight() / gain) < 1e-5, layer.name


def test_orthogonal_kernels_are_orthogonal_as_flat_matrices(generator):
    model = small(generator)
    dense_init(model, "orthogonal", generator=generator)
    flat = model.conv3.weight.detach().flatten(1)
    torch.testing.assert_close(flat @ flat.T, torch.eye(6), atol=1e-5, rtol=0)


def test_delta_kernels_live_at_the_centre_and_the_others_at_every_tap(generator):
    model = small(generator)
    dense_init(model, "delta_orthogonal", generator=generator)
    assert model.conv3.weight.detach().count_nonzero(dim=(0, 1)).nonzero().tolist() == [[1, 1]]
    dense_init(model, "conv_orthogonal", generator=generator)
    assert bool((model.conv3.weight != 0).all())


@pytest.mark.parametrize("kind", ORTHOGONAL)
def test_groups_and_fused_blocks_are_orthogonal_each(kind, generator):
    model = nn.Sequential()
    model.add_module("depthwise", nn.utils.skip_init(nn.Conv2d, 4, 4, 3, groups=4))
    model.add_module("qkv", nn.utils.skip_init(nn.Linear, 5, 15))
    dense_init(model, kind, generator=generator)
    for block in model.qkv.weight.detach().split(5):
        torch.testing.assert_close(block @ block.T, torch.eye(5), atol=1e-5, rtol=0)
    if kind == "orthogonal":
        torch.testing.assert_close(model.depthwise.weight.detach().flatten(1).norm(dim=1), torch.ones(4))
    else:
        assert orthogonality_score(model.depthwise.weight, groups=4) < 1e-5


def test_biases_have_the_asked_deviation_and_none_by_default(generator):
    model = nn.Sequential(nn.utils.skip_init(nn.Linear, 2, 20000))
    dense_init(model, "orthogonal", bias_std=0.5, generator=generator)
    assert model[0].bias.detach().std().item() == pytest.approx(0.5, rel=0.02)
    dense_init(model, "orthogonal", generator=generator)
    assert not model[0].bias.any()


def test_batch_normalisation_is_left_alone(generator):
    model = build("resnet32", classes=10, in_shape=(3, 32, 32), generator=generator)
    dense_init(model, "conv_orthogonal", bias_std=1.0, generator=generator)
    assert bool((model.bn1.weight == 1).all())
    assert not model.bn1.bias.any()


@pytest.mark.parametrize("kind", ORTHOGONAL)
def test_a_generator_decides_everything_and_layers_do_not_feel_each_other(kind):
    one, two, deeper = small(seeded(0)), small(seeded(1)), small(seeded(2), depth=10)
    before = torch.get_rng_state()
    for model in (one, two, deeper):
        dense_init(model, kind, bias_std=0.1, generator=seeded(3))
    assert torch.equal(torch.get_rng_state(), before)
    for key, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[key])
        assert torch.equal(value, deeper.state_dict()[key])


def test_default_leaves_what_build_drew(generator):
    model, twin = small(seeded(4)), small(seeded(4))
    dense_init(model, "default", generator=generator)
    assert_same(twin.state_dict(), model.state_dict())
    with pytest.raises(ValueError, match=r"kind: default takes no gain and no bias_std; got 2.0 and 0.0"):
        dense_init(model, "default", gain=2.0)


def test_unknown_kinds_and_masked_models_are_refused_and_nothing_changes(generator):
    model = small(generator)
    parametrize.register_parametrization(model.conv2, "weight", nn.Hardtanh())
    before = state_of(model)
    with pytest.raises(ValueError, match=r"kind: expected one of conv_orthogonal, default, .*; got 'kaiming'"):
        dense_init(model, "kaiming")
    with pytest.raises(ValueError, match="model: expected a dense one; layer conv2 has a mask"):
        dense_init(model, "orthogonal")
    assert_same(before, model.state_dict())
