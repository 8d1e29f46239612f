import pytest
import torch

from orthosparse import SparseLinear


def test_more_entries_than_weights_are_refused():
    with pytest.raises(ValueError, match="entries: expected at most 6"):
        SparseLinear(2, 3, 7)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_without_a_kernel_for_its_type_the_error_says_what_to_do(dtype):
    layer = SparseLinear(4, 3, 5, dtype=dtype)
    with pytest.raises(RuntimeError, match=r"expected float32 or float64 on the CPU.*expand"):
        layer(torch.ones(2, 4, dtype=dtype))


@pytest.mark.gpu
def test_on_a_gpu_the_error_says_what_to_do():
    with pytest.raises(RuntimeError, match=r"expected float32 or float64 on the CPU.*expand"):
        SparseLinear(4, 3, 5, device="cuda")(torch.ones(2, 4, device="cuda"))
