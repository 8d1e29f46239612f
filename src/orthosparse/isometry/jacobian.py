"""The singular values of a model's input-output Jacobian: all if it is small, else the largest and the mean."""

import math
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointError

from orthosparse.checks import check_at_least, check_model, check_number
from orthosparse.hardware import on_float64_device, precise
from orthosparse.isometry._functional import Output, evaluated
from orthosparse.isometry._krylov import ritz
from orthosparse.isometry._linear import LinearLayers
from orthosparse.isometry._products import Jacobian
from orthosparse.isometry._spectrum import Spectrum, rounding, spectrum_of
from orthosparse.masking import on_masked_forms
from orthosparse.progress import Progress, Reporter, reporter
from orthosparse.randomness import derive, derive_seed, draw_seed

Method = Literal["auto", "exact", "matrix_free"]

_SIDE = 512  # smaller side up to which every singular value is computed
_PRODUCTS = 4096  # and the number of products that this may take
_BYTES = 2**30  # and the memory of the Jacobians
# A probe's estimate of the mean varies by sqrt(2 / side) times the spectrum's std, and the control variate takes about
# half of that: for 0.5 % of it, probes * side = 2e4.
_PROBES, _SAMPLES = 8, 20_000


@on_masked_forms
def singular_values(
    model: nn.Module,
    x: Tensor,
    *,
    output: Output | None = None,
    through: str | None = None,
    k: int | None = None,
    method: Method = "auto",
    chunk: int | None = None,
    probes: int | None = None,
    steps: int = 30,
    tolerance: float = 1e-5,
    generator: torch.Generator | None = None,
    progress: Progress = False,
) -> Spectrum:
    """Return the singular values of the input-output Jacobian d model(x)_i / d x_i of every sample i.

    The result is a Spectrum; its ``.values`` are [batch, k]. The model is used as it is: mode, masks, dtype, device.
    Its buffers, gradients and mode, and the random states, are not changed; dropout in train mode draws one mask from
    `generator`. If samples influence each other (batch normalization in train mode), the Jacobian of sample i includes
    its effect on the batch statistics, while the other samples are fixed.

    ``exact`` builds the Jacobians from products with the unit vectors of the smaller side. ``matrix_free`` finds the
    `k` largest values by block Golub-Kahan-Lanczos, and estimates the mean, std and their error by stochastic
    quadrature. Values that lie closer together than its resolution may be listed fewer times than they occur. If the
    smaller side is at most 512 and `steps` allows it, it spans the whole side, and there is no sampling error. ``auto``
    is exact if the smaller side is at most 512, this takes at most 4096 products, and the Jacobians fit in 1 GiB.

    Args:
        x: a batch of floating-point inputs, samples first.
        output: which tensor to use if the model does not return a single one: a callable, a key or attribute, or an
            index.
        through: name of a module (``"layer3"``) to stop at: the spectrum is that of the layers up to its output.
        k: number of values to list for each sample; by default all (exact) or only the largest (matrix_free).
        method: ``auto``, ``exact`` or ``matrix_free``, see above.
        chunk: number of products that go through the graph at once; 1 needs no batched kernels and the least memory.
        probes: for matrix_free, number of vectors in a block; by default enough for a standard error of the mean near
            0.5 % of the spectrum's std, and at least 8.
        steps: for matrix_free, largest number of blocks. If values are not known to `tolerance` by then, `error` says
            so.
        tolerance: for matrix_free, estimated relative error of the listed values at which to stop.
        generator: draws the first block of matrix_free, and the random numbers of the model itself.
        progress: as in `orthosparse.sparsify`; counts chunks of products (exact) or blocks (matrix_free).

    Raises:
        TypeError: `x` or the output is not a floating-point tensor.
        ValueError: the batch is empty, the output does not have the samples first, the model changes its input in
            place, or the Jacobian is not finite.

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> model = nn.Linear(3, 2)
        >>> _ = nn.init.orthogonal_(model.weight, generator=g)
        >>> singular_values(model, torch.randn(4, 3, generator=g)).values.shape
        torch.Size([4, 2])
    """
    report = reporter(progress)
    check_model(model)
    _check(method=method, k=k, chunk=chunk, probes=probes, steps=steps)
    check_number("tolerance", tolerance, least=0)
    seed = draw_seed(generator)

    def measured(form: AbstractContextManager[Any]) -> Spectrum:
        own = derive_seed(seed, "model")
        with evaluated(model, x, seed=own, form=form, output=output, through=through) as at:
            jacobian = Jacobian(at.x, at.y, widest=at.widest, chunk=chunk)
            side = min(jacobian.inputs, jacobian.outputs)
            if k is not None and k > side:
                raise ValueError(f"k: expected at most {side}, the smaller side of the Jacobian; got {k}")
            if method == "exact" or (method == "auto" and _is_small(jacobian)):
                return _exact(jacobian, k, report)
            block = min(side, probes or max(_PROBES, math.ceil(_SAMPLES / side)))
            return _matrix_free(jacobian, k or 1, block, steps, tolerance, seed, report)

    with suppress(CheckpointError):  # layers that are computed again in the backward pass are then in torch's own form
        return measured(LinearLayers())
    return measured(nullcontext())


def _check(*, method: str, **counts: int | None) -> None:
    if not isinstance(method, str) or method not in get_args(Method):
        raise ValueError(f"method: expected one of {', '.join(get_args(Method))}; got {method!r}")
    for name, count in counts.items():
        if count is not None:
            check_at_least(count, 2 if name == "probes" else 1, name)


def _is_small(jacobian: Jacobian) -> bool:
    side = min(jacobian.inputs, jacobian.outputs)
    products = side * (jacobian.batch if jacobian.coupled else 1)
    memory = jacobian.batch * jacobian.inputs * jacobian.outputs * jacobian.x.element_size()
    return side <= _SIDE and products <= _PRODUCTS and memory <= _BYTES


def _exact(jacobian: Jacobian, k: int | None, report: Reporter) -> Spectrum:
    reverse = jacobian.outputs <= jacobian.inputs
    side = min(jacobian.inputs, jacobian.outputs)
    units = torch.eye(side, dtype=jacobian.y.dtype, device=jacobian.y.device).unsqueeze(1)
    vectors = units.expand(side, jacobian.batch, side)
    rows = jacobian.transposed(vectors, report) if reverse else jacobian.times(vectors, report)
    values = torch.linalg.svdvals(on_float64_device(precise(_finite(rows))).transpose(0, 1))
    return spectrum_of(values, k=k, products=jacobian.products, dtype=rows.dtype)


def _matrix_free(
    jacobian: Jacobian, k: int, probes: int, steps: int, tolerance: float, seed: int, report: Reporter
) -> Spectrum:
    # The basis lies on the smaller side: J J^T if there are fewer outputs, else J^T J.
    first, second = jacobian.transposed, jacobian.times
    if jacobian.outputs > jacobian.inputs:
        first, second = second, first
    device = jacobian.y.device
    like = on_float64_device(precise(jacobian.y.detach().new_zeros(jacobian.batch)))
    estimate = ritz(
        lambda vectors: _finite(first(vectors.to(device))).to(like),
        lambda vectors: _finite(second(vectors.to(device))).to(like),
        min(jacobian.inputs, jacobian.outputs),
        like,
        count=k,
        probes=probes,
        steps=steps,
        tolerance=tolerance,
        generator=derive(seed, "probes"),
        report=report,
    )
    report("singular_values", steps + 1, steps + 1)  # the blocks, then the vectors that sample the mean
    mean, scale = float(estimate.mean().mean()), estimate.values[:, :1].clamp_min(torch.finfo(like.dtype).tiny)
    return Spectrum(
        values=estimate.values[:, :k],
        mean=mean,
        std=math.sqrt(max(0.0, float(estimate.mean_square().mean()) - mean**2)),
        max=float(estimate.values.max()),
        min=float(estimate.values.min()),
        error=float((estimate.errors(k) / scale).max()) + rounding(estimate.side, jacobian.y.dtype),
        # The errors of probes are independent between samples, those of the quadrature are not.
        mean_error=float(torch.linalg.vector_norm(estimate.sampling_error()) / len(like) + estimate.enclosure().mean()),
        products=jacobian.products,
        exact=False,
    )


def _finite(products: Tensor) -> Tensor:
    if not torch.isfinite(products).all():
        raise ValueError("model: its Jacobian at x is not finite (overflow, or NaN in x or in the weights?)")
    return products
