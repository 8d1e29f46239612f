"""How orthogonal a matrix of a layer is, through the stride of its convolution."""

from orthosparse.orthogonality import orthogonality_score


def score_through_stride(layer, matrix, *, gain):
    """Score [out, in, taps]; along sides shorter than their stride, which cannot tile, at stride 1."""
    kernel = matrix.unflatten(2, layer.kernel) if layer.kernel else matrix.squeeze(2)
    if not layer.strided:
        return orthogonality_score(kernel, gain=gain)
    stride = [step if side >= step else 1 for side, step in zip(layer.kernel, layer.geometry["stride"], strict=True)]
    return orthogonality_score(kernel.transpose(0, 1) if layer.transposed else kernel, stride=stride, gain=gain)
