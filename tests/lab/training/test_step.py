import pytest
import torch

from orthosparse.lab.training import fit
from orthosparse.lab.training.step import gradients


@pytest.mark.parametrize("changes", [{}, {"accumulate": 2}, {"density": 1.0}, {"dynamic": "rigl", "every": 3}], ids=str)
def test_a_step_past_the_wrapper_is_one_through_it_to_the_last_bit(assembled, same_weights, changes):
    past, through = assembled(precision="fp32", **changes), assembled(precision="fp32", **changes)
    assert past.networks._is_plain
    through.networks._is_plain = False
    fit(past)
    fit(through)
    assert same_weights(past.networks.network, through.networks.network)
    assert [entry["loss"] for entry in past.histories[0]] == [entry["loss"] for entry in through.histories[0]]


@pytest.mark.parametrize("precision", ["bf16", "fp64"])
def test_another_precision_goes_through_the_wrapper(assembled, precision):
    assert not assembled(precision=precision).networks._is_plain


def test_gradients_are_those_of_the_last_batch_alone(assembled):
    state = assembled()
    (first, one), (second, two), *_ = state.loader.epoch(0)
    gradients(state, first, one[None], len(one))
    gradients(state, second, two[None], len(two))
    found = [parameter.grad.clone() for parameter in state.networks.network.parameters()]
    gradients(state, second, two[None], len(two))
    assert all(torch.equal(p.grad, g) for p, g in zip(state.networks.network.parameters(), found, strict=True))


@pytest.mark.parametrize("parts", [2, 3])
def test_parts_of_a_batch_add_up_to_it(assembled, parts):
    whole, cut = assembled(precision="fp64"), assembled(precision="fp64", accumulate=parts)
    images, labels = next(iter(whole.loader.epoch(0)))
    found = [gradients(state, images, labels[None], len(labels)) for state in (whole, cut)]
    # Sums of float64 in another order.
    torch.testing.assert_close(*found, atol=0, rtol=1e-12)
    for one, other in zip(cut.networks.network.parameters(), whole.networks.network.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-12, rtol=1e-9)
