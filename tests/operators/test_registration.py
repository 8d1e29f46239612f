"""The two ways to a product: directly, and by operators where somebody wants to see them."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from operators.blocks import draw
from orthosparse.operators import block_linear, csr_linear, csr_tables


class Seen(TorchDispatchMode):
    """Notes the names of operators of ours."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "orthosparse":
            self.names.append(func._opname)
        return func(*args, **(kwargs or {}))


def products(generator):
    """Return a product of either kind, of x and values in float64."""
    weight = draw((2, 3), 16, 0.5, generator, dtype=torch.float64)
    rows, columns = (torch.rand(5, 48, generator=generator) < 0.3).nonzero(as_tuple=True)
    tables, entries = csr_tables(rows, columns, (5, 48)), torch.randn(1, len(rows), generator=generator).double()
    return {
        "block": (lambda x, values: block_linear(x, values, None, weight.plan, weight.shape), weight.values),
        "csr": (lambda x, values: csr_linear(x, values, None, *tables), entries),
    }


@pytest.mark.parametrize("kind", ["block", "csr"])
def test_both_ways_give_the_same_gradients(kind, generator):
    product, values = products(generator)[kind]
    x = torch.randn(4, 48, generator=generator, dtype=torch.float64, requires_grad=True)
    values.requires_grad_()
    direct = torch.autograd.grad(product(x, values).sin().sum(), [x, values])
    with Seen() as seen:
        watched = torch.autograd.grad(product(x, values).sin().sum(), [x, values])
    assert all(torch.equal(one, other) for one, other in zip(direct, watched, strict=True))
    assert sorted(seen.names) == [f"{kind}_{name}" for name in ("input_grad", "linear", "weight_grad")]


@pytest.mark.parametrize("kind", ["block", "csr"])
def test_a_backward_pass_can_be_watched_alone(kind, generator):
    product, values = products(generator)[kind]
    y = product(torch.randn(4, 48, generator=generator, dtype=torch.float64), values.requires_grad_())
    with Seen() as seen:
        y.sum().backward()
    assert seen.names == [f"{kind}_weight_grad"]


@pytest.mark.parametrize("kind", ["block", "csr"])
def test_without_gradients_the_result_is_the_same_and_forward_mode_drops_no_tangent(kind, generator):
    product, values = products(generator)[kind]
    x = torch.randn(4, 48, generator=generator, dtype=torch.float64)
    expected = product(x, values)
    with torch.inference_mode():
        assert torch.equal(product(x, values), expected)
    with torch.no_grad(), forward_ad.dual_level():
        assert torch.equal(product(x, values), expected)
        with pytest.raises(NotImplementedError, match="jvp"):
            product(forward_ad.make_dual(x, x), values)


@pytest.mark.parametrize("kind", ["block", "csr"])
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.enable_grad])
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_trace_holds_the_operator_not_its_result(mode, kind, generator):
    product, values = products(generator)[kind]
    x = torch.randn(4, 48, generator=generator, dtype=torch.float64)
    with mode():
        traced = torch.jit.trace(product, (x, values))
        torch.testing.assert_close(traced(2 * x, values), product(2 * x, values))
