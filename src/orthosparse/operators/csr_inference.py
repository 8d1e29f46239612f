"""CSR linear layers and convolutions for inference, as torch operators without gradients, or tables for them.

A weight ``[outputs, inputs]``, or ``[outputs, inputs * taps]`` for a convolution, is stored in CSR format: values ``[1,
entries]``, and int32 tables ``row_starts`` and ``columns``.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from orthosparse.operators import csr_kernel, csr_torch, windows
from orthosparse.operators.registration import check_factors, is_direct, matrix, under_autocast
from orthosparse.operators.windows import Geometry, check_input

_library = torch.library.Library("orthosparse", "FRAGMENT")
_library.define(
    "csr_inference(Tensor x, Tensor values, Tensor? bias, Tensor row_starts, Tensor columns, bool features_first) "
    "-> Tensor"
)
_library.define(
    "csr_convolution(Tensor x, Tensor values, Tensor? bias, Tensor row_starts, Tensor columns, int[] kernel, "
    "int[] stride, int[] padding, int[] dilation) -> Tensor"
)


def csr_inference(
    x: Tensor,
    values: Tensor,
    bias: Tensor | None,
    row_starts: Tensor,
    columns: Tensor,
    *,
    inputs: int,
    features_first: bool,
) -> Tensor:
    """Return ``x @ weight.T + bias``, without gradients.

    Args:
        x: ``[..., inputs]``.
        features_first: whether the result is stored features first, so that the next product needs no copy; else it is
            contiguous.
    """
    x = _prepared(x, values)
    check_factors(x, values, inputs=inputs)
    direct = is_direct(x) and x.device.type == "cpu"
    call: Any = _linear if direct else torch.ops.orthosparse.csr_inference
    result: Tensor = call(x, values, bias, row_starts, columns, features_first)
    return result


def convolution_inference(
    x: Tensor,
    values: Tensor,
    bias: Tensor | None,
    row_starts: Tensor,
    columns: Tensor,
    *,
    inputs: int,
    geometry: Geometry,
) -> Tensor:
    """Return the convolution of `x`, without gradients; contiguous.

    Args:
        x: ``[batch, inputs, *spatial]``.
        columns: ``channel * taps + tap``, with channels counted over all groups.

    Raises:
        ValueError: `x` has another shape or device than the weight expects, or is smaller than the kernel.
        TypeError: `x` has another dtype than the weight.
    """
    x = _prepared(x, values)
    check_input(x, values, inputs, geometry)
    call: Any = _convolution if is_direct(x) else torch.ops.orthosparse.csr_convolution
    result: Tensor = call(x, values, bias, row_starts, columns, *geometry)
    return result


def _prepared(x: Tensor, values: Tensor) -> Tensor:
    """Return samples in the dtype of the weight under autocast, where earlier layers may return another dtype.

    Raises:
        RuntimeError: gradients are enabled and required.
    """
    if torch.is_grad_enabled() and (x.requires_grad or values.requires_grad):
        raise RuntimeError("layers for inference have no gradients; call them under torch.inference_mode()")
    return x.to(values.dtype) if under_autocast(x) and x.is_floating_point() else x


def _linear(
    x: Tensor, values: Tensor, bias: Tensor | None, row_starts: Tensor, columns: Tensor, features_first: bool
) -> Tensor:
    samples = matrix(x).T.contiguous()
    backend = csr_kernel if csr_kernel.is_built() else csr_torch
    y: Tensor = backend.product(samples, values, bias, row_starts, columns)
    y = y.T if features_first else y.T.contiguous()
    return y.view(*x.shape[:-1], y.shape[1])


def _on_gpu(
    x: Tensor, values: Tensor, bias: Tensor | None, row_starts: Tensor, columns: Tensor, features_first: bool
) -> Tensor:
    samples, outputs = matrix(x).T, len(row_starts) - 1
    weight = torch.sparse_csr_tensor(row_starts, columns, values[0], (outputs, len(samples)), check_invariants=False)
    y = (weight @ samples.contiguous()).T
    y = y if bias is None else y + bias
    return (y if features_first else y.contiguous()).view(*x.shape[:-1], outputs)


def _fake(
    x: Tensor, values: Tensor, bias: Tensor | None, row_starts: Tensor, columns: Tensor, features_first: bool
) -> Tensor:
    del values, bias, columns
    rows, outputs = math.prod(x.shape[:-1]), len(row_starts) - 1
    y = x.new_empty(outputs, rows).T if features_first else x.new_empty(rows, outputs)
    return y.view(*x.shape[:-1], outputs)


def _convolution(
    x: Tensor, values: Tensor, bias: Tensor | None, row_starts: Tensor, columns: Tensor, *sides: Sequence[int]
) -> Tensor:
    return windows.convolution(x, values, bias, row_starts, columns, Geometry(*map(tuple, sides)))


def _fake_convolution(
    x: Tensor, values: Tensor, bias: Tensor | None, row_starts: Tensor, columns: Tensor, *sides: Sequence[int]
) -> Tensor:
    del values, bias, columns
    return x.new_empty(x.shape[0], len(row_starts) - 1, *Geometry(*map(tuple, sides)).outputs(x.shape[2:]))


_library.impl("csr_inference", _linear, "CPU")
_library.impl("csr_inference", _on_gpu, "CUDA")
torch.library.register_fake("orthosparse::csr_inference", _fake, lib=_library)
_library.impl("csr_convolution", _convolution, "CPU")
torch.library.register_fake("orthosparse::csr_convolution", _fake_convolution, lib=_library)
