import torch
from hypothesis import given
from hypothesis import strategies as st

from contracts.models import MODELS
from orthosparse.counts import count_of
from orthosparse.distributions.magnitude import magnitude
from orthosparse.layers import find_layers


@given(st.floats(0, 1), st.sampled_from(sorted(MODELS)))
def test_no_weight_that_is_kept_is_smaller_than_one_that_is_not(density, model_name):
    model = MODELS[model_name].make()
    masks = magnitude(model, density)
    weights = {name: layer.weight().abs() for name, layer in find_layers(model).items()}
    kept = torch.cat([weights[name][mask] for name, mask in masks.items()])
    gone = torch.cat([weights[name][~mask] for name, mask in masks.items()])
    assert len(kept) == count_of(density, len(kept) + len(gone))
    if len(kept) and len(gone):
        assert kept.min() >= gone.max()


def test_of_equal_weights_the_first_are_kept():
    model = MODELS["mlp"].make()
    with torch.no_grad():
        for layer in find_layers(model).values():
            layer.parameter().fill_(-2.0)
    assert torch.cat([mask.flatten() for mask in magnitude(model, 0.3).values()]).nonzero().flatten().tolist() == [
        *range(197)
    ]
