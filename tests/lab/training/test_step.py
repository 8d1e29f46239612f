import pytest
import torch

from orthosparse.lab.training import fit
from orthosparse.lab.training.step import gradients


@pytest.mark.parametrize("changes", [{}, {"accumulate": 2}, {"density": 1.0}, {"dynamic": "rigl", "every": 3}], ids=str)
def test_a_step_past_the_wrapper_is_one_through_it_to_the_last_bit(assembled, same_weights, changes):
    past, through = assembled(precision="fp32", **changes), assembled(precision="fp32", **changes)
    assert past.is_plain
    through.is_plain = False
    fit(past)
    fit(through)
    assert same_weights(past.network, through.network)
    assert [entry["loss"] for entry in past.history] == [entry["loss"] for entry in through.history]


@pytest.mark.parametrize("precision", ["bf16", "fp64"])
def test_another_precision_goes_through_the_wrapper(assembled, precision):
    assert not assembled(precision=precision).is_plain


def test_gradients_are_those_of_the_last_batch_alone(assembled):
    state = assembled()
    (first, one), (second, two), *_ = state.loader.epoch(0)
    gradients(state, first, one, len(one))
    gradients(state, second, two, len(two))
    found = [parameter.grad.clone() for parameter in state.network.parameters()]
    gradients(state, second, two, len(two))
    assert all(torch.equal(p.grad, g) for p, g in zip(state.network.parameters(), found, strict=True))


@pytest.mark.parametrize("parts", [2, 3])
def test_parts_of_a_batch_add_up_to_it(assembled, parts):
    whole, cut = assembled(precision="fp64"), assembled(precision="fp64", accumulate=parts)
    images, labels = next(iter(whole.loader.epoch(0)))
    for state in (whole, cut):
        gradients(state, images, labels, len(labels))
    # Sums of float64 in another order; the tally is float32.
    torch.testing.assert_close(cut.tally.values, whole.tally.values, atol=0, rtol=1e-6)
    for one, other in zip(cut.network.parameters(), whole.network.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-12, rtol=1e-9)
