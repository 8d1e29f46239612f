"""AI: weights optimized towards orthogonality on given masks (approximate isometry, Lee et al. 2020)."""

from collections.abc import Mapping

import torch
from torch import nn

from orthosparse.aliases import Masks
from orthosparse.checks import check_at_least, check_gain, check_number
from orthosparse.distributed import full_tensor, write_
from orthosparse.layers import Layer
from orthosparse.progress import Progress, reporter
from orthosparse.randomness import draw_seed
from orthosparse.schemes._descent import descend
from orthosparse.schemes._fill import check_scales, fill_biases, match_layers


def ai(
    model: nn.Module,
    masks: Masks,
    *,
    layers: Mapping[str, Layer] | None = None,
    gain: float = 1.0,
    bias_std: float = 0.0,
    generator: torch.Generator | None = None,
    iterations: int = 10_000,
    learning_rate: float = 0.1,
    tolerance: float = 1e-6,
    device: torch.device | str = "cpu",
    progress: Progress = False,
) -> Masks:
    """Minimize ||C C^T - gain^2 I||_F over the masked weights C of each matrix, by plain gradient descent.

    This is approximate isometry (Lee et al. 2020). The norm is not squared. C is out x (in * taps), and C^T C is used
    where that is smaller; groups and fused blocks are matrices of their own. The descent starts from the model's
    weights times their masks. The paper uses 10^4 iterations, and 10^3 for its 1000-layer networks. Each matrix gets
    the best of the states that are checked every 50 iterations, including the first, so its loss never increases.

    Args:
        iterations: largest number of iterations for each matrix.
        learning_rate: learning rate of the descent.
        tolerance: a matrix is done when 250 iterations lower its loss by less than this fraction; 0 never stops early.
        device: device to compute on, in float32 (float64 for float64 weights). On the CPU, the bits depend neither on
            the number of threads nor on the other layers.
        progress: as in `sparsify`; counts the iterations of all matrices.

    Example:
        >>> model = nn.Linear(32, 16)
        >>> mask = torch.rand(16, 32, generator=torch.Generator().manual_seed(0)) < 0.5
        >>> masks = ai(model, {"weight": mask}, iterations=500)
        >>> bool((model.weight @ model.weight.T - torch.eye(16)).norm() < 0.5)
        True
    """
    report = reporter(progress)
    layers, seed = match_layers(model, masks, layers), draw_seed(generator)
    gain, bias_std = check_scales(layers, gain, bias_std)
    _check_target(layers, gain)
    _check_options(iterations, learning_rate, tolerance)
    starts = {name: _start(layer, masks[name], torch.device(device)) for name, layer in layers.items()}
    views = [view for name, layer in layers.items() for view in layer.views(starts[name])]
    active = [view for name, layer in layers.items() for view in layer.views(masks[name].to(device).contiguous())]
    ends = descend(
        [view.flatten(0, 1).flatten(1) for view in views],
        [view.flatten(0, 1).flatten(1) for view in active],
        target=gain**2,
        iterations=iterations,
        rate=learning_rate,
        tolerance=tolerance,
        report=report,
    )
    for view, end in zip(views, ends, strict=True):
        view.copy_(end.reshape(view.shape))
    for name, layer in layers.items():
        write_(layer.parameter(), starts[name])
        fill_biases(layer, bias_std, seed)
    return dict(masks)


def _start(layer: Layer, mask: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a contiguous copy of the layer's weight on `device`, zero outside the mask."""
    weight = full_tensor(layer.parameter())
    if not torch.isfinite(weight).all():
        raise ValueError(f"model: expected finite weights to start from; {layer.name!r} has NaN or infinite ones")
    dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
    copy = torch.empty(weight.shape, dtype=dtype, device=device).copy_(weight)
    return copy.masked_fill_(~mask.to(device), 0.0)


def _check_target(layers: Mapping[str, Layer], gain: float) -> None:
    """Raise if the loss, whose square sums fourth powers of the gain, would overflow."""
    for layer in layers.values():
        dtype = torch.promote_types(layer.parameter().dtype, torch.float32)
        check_gain(gain, (torch.finfo(dtype).max / layer.numel) ** 0.25)


def _check_options(iterations: int, learning_rate: float, tolerance: float) -> None:
    check_at_least(iterations, 0, "iterations")
    check_number("learning_rate", learning_rate, least=0)
    check_number("tolerance", tolerance, least=0)
