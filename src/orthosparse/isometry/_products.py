"""The Jacobians of a batch of samples, given by their products with vectors."""

import torch
from torch import Tensor

from orthosparse.progress import Reporter, counted, silent

_ELEMENTS = 2**25  # largest tensor of a batched product: 128 MiB in float32


class Jacobian:
    """J_i = d y_i / d x_i for every sample i, given by the products J v and J^T u.

    If samples influence each other (batch normalization in train mode), J_i is the diagonal block of the Jacobian of
    the whole batch: the statistics are functions of all samples, including x_i, and the other samples are fixed. A
    product with all J_i then takes one product with the batch's Jacobian per sample, instead of one in total.

    J v is a derivative of J^T u, which is linear in u. So one forward pass serves every product: a dropout mask is
    drawn once, and the memory is that of one graph, for any number of products.

    Attributes:
        products: number of products with the batch's Jacobian so far.
    """

    def __init__(self, x: Tensor, y: Tensor, *, widest: int, chunk: int | None = None) -> None:
        self.x, self.y = x, y
        self.batch, self.inputs, self.outputs = len(x), x[0].numel(), y[0].numel()
        self.chunk = chunk if chunk is not None else max(1, _ELEMENTS // max(widest, x.numel(), y.numel()))
        self.products = 0
        self._cotangent: Tensor | None = None
        self._pullback: Tensor | None = None
        self.coupled = self.batch > 1 and self._samples_interact()

    def transposed(self, vectors: Tensor, report: Reporter = silent) -> Tensor:
        """Return J^T u, [number, batch, inputs], for u in [number, batch, outputs]."""
        return self._apply(self.y, self.x, vectors, report)

    def times(self, vectors: Tensor, report: Reporter = silent) -> Tensor:
        """Return J v, [number, batch, outputs], for v in [number, batch, inputs]."""
        if self._pullback is None or self._cotangent is None:
            self._cotangent = torch.zeros_like(self.y, requires_grad=True)
            (self._pullback,) = torch.autograd.grad(
                self.y, self.x, self._cotangent, create_graph=True, materialize_grads=True
            )
        return self._apply(self._pullback, self._cotangent, vectors, report)

    def _apply(self, source: Tensor, target: Tensor, vectors: Tensor, report: Reporter) -> Tensor:
        vectors = vectors.to(source.dtype)
        jobs = len(vectors) * (self.batch if self.coupled else 1)
        starts = counted(range(0, jobs, self.chunk), "singular_values", report)
        parts = [self._part(source, target, vectors, slice(i, i + self.chunk)) for i in starts]
        return torch.cat(parts).view(len(vectors), self.batch, -1)

    def _part(self, source: Tensor, target: Tensor, vectors: Tensor, jobs: slice) -> Tensor:
        if not self.coupled:
            return self._gradients(source, target, vectors[jobs])
        # Job j applies vector j // batch to only sample j % batch, and reads only the result of that sample.
        rows = torch.arange(len(vectors) * self.batch, device=vectors.device)[jobs]
        number, sample = rows.div(self.batch, rounding_mode="floor"), rows % self.batch
        isolated = vectors.new_zeros(len(rows), self.batch, vectors.shape[-1])
        each = torch.arange(len(rows), device=vectors.device)
        isolated[each, sample] = vectors[number, sample]
        return self._gradients(source, target, isolated)[each, sample]

    def _gradients(self, source: Tensor, target: Tensor, vectors: Tensor) -> Tensor:
        """Return the products of one chunk, [number, batch, side of target]; batched unless there is only one."""
        self.products += len(vectors)
        shaped = vectors.reshape(len(vectors), *source.shape)
        if len(vectors) == 1:
            (one,) = torch.autograd.grad(source, target, shaped[0], retain_graph=True, materialize_grads=True)
            return one.reshape(1, self.batch, -1)
        with torch.autograd.set_detect_anomaly(False):  # which cannot look into batches
            (many,) = torch.autograd.grad(
                source, target, shaped, retain_graph=True, is_grads_batched=True, materialize_grads=True
            )
        return many.reshape(len(vectors), self.batch, -1)

    def _samples_interact(self) -> bool:
        """Whether a sample's output depends on another sample's input.

        Any two samples differ in a binary digit of their indices. So for each digit, and each of its values, a random
        cotangent on the samples with that value must leave the gradients of the others exactly zero.
        """
        number = torch.arange(self.batch, device=self.y.device)
        generator = torch.Generator().manual_seed(0)  # any cotangent without zeros will do; always the same one
        noise = torch.rand(self.y.shape, generator=generator, dtype=torch.float32, device="cpu").to(self.y) + 0.5
        for digit in range((self.batch - 1).bit_length()):
            for value in (0, 1):
                chosen = (number >> digit) % 2 == value
                cotangent = noise * chosen.view(-1, *[1] * (noise.dim() - 1))
                gradient = self._gradients(self.y, self.x, cotangent.reshape(1, self.batch, -1))
                if gradient[0, ~chosen].any():
                    return True
        return False
