"""Our CUDA kernels against torch's operations: built for a CPU everywhere, and by nvcc where there is a GPU."""

import pytest
import torch

from lab.training.stacked.emulator import emulated, error, needs_compiler
from orthosparse.lab.models import ACTIVATIONS
from orthosparse.lab.models.stages import Grid, Stage
from orthosparse.lab.training.stacked import cuda_launches
from orthosparse.lab.training.stacked.cuda_launches import Convolutions, fits
from orthosparse.lab.training.stacked.maps import DeferredNorm, Maps, PreviousLayer
from orthosparse.lab.training.stacked.operations import convolved, input_grad, weight_grad

TORCH = Maps(torch.float32)
# Of bfloat16, which rounds results by half of 2**-8 at most, 2**-9 / sqrt(3) on average.
ROUNDING = 2e-3
ROOM = 232_448  # bytes of a device, by whose number the emulator knows them
PIXEL = 5 * 32 + 9  # inside a map, so that it meets every tap


class Case:
    """Random samples, weights and gradients of some networks; images that do not fill the last tile of each."""

    def __init__(self, channels, images, activation, generator, *, networks=2, device="cpu"):
        side = 512 // channels
        self.grid, self.activation = Grid(side, side, 3, 1, circular=False), activation
        self._generator, self._device = generator, device
        rows = (networks, images * side * side, channels)
        self.previous_z, self.grad, self.z, self.shortcut_grad = (self.drawn(*rows).bfloat16() for _ in range(4))
        weights = self.drawn(networks, channels, 9 * channels)
        self.weights = (weights * (2 / (9 * channels)) ** 0.5).bfloat16()
        self.scale_shift = 1 + 0.3 * self.drawn(3, networks, channels)
        self.coefficients = 1 + 0.3 * self.drawn(4, networks, channels)
        self.x = TORCH.normalise(self.previous_z.float(), self.scale_shift, activation).bfloat16()
        self.normed = DeferredNorm(self.previous_z, self.scale_shift)

    def drawn(self, *shape):
        return torch.randn(*shape, generator=self._generator).to(self._device)

    def convolution(self):
        pairs = zip(self.x.float(), self.weights.float(), strict=True)
        return torch.stack([convolved(x, weight, self.grid) for x, weight in pairs])

    def gradients(self, shortcut_grad):
        """Return the gradient before the activation, and those of the weights."""
        inner = TORCH.norm_backward(self.grad.float(), self.z.float(), self.coefficients).bfloat16().float()
        triples = list(zip(inner, self.weights.float(), self.x.float(), strict=True))
        found = torch.stack([input_grad(grad, weight, self.grid) for grad, weight, _ in triples])
        found += 0 if shortcut_grad is None else shortcut_grad.float()
        v, _ = TORCH.activation_backward(found, PreviousLayer(self.x.float(), self.previous_z.float(), self.activation))
        return v, torch.stack([weight_grad(grad, x, weight, self.grid) for grad, weight, x in triples])


def check_forward(kernels, case):
    for x in (case.x, case.normed):
        found, sums = kernels.convolve(x, case.weights, with_sums=True)
        assert error(found, case.convolution()) < ROUNDING
        assert error(sums.sum(1), TORCH.sums(found, found)) < 1e-6
    again, none = kernels.convolve(x, case.weights, with_sums=False)
    assert torch.equal(again, found)
    assert none is None


def check_backward(kernels, case):
    for x, shortcut_grad in ((case.x, case.shortcut_grad), (case.normed, None)):
        weight_grads = torch.full(kernels.weight_grads_shape(case.grad), torch.nan, device=case.grad.device)
        given = (case.grad, case.z, case.coefficients, x, case.weights)
        found, sums = kernels.convolve_backward(
            *given, weight_grads=weight_grads, shortcut_grad=shortcut_grad, previous_z=case.previous_z
        )
        v, weights = case.gradients(shortcut_grad)
        assert error(found, v) < ROUNDING
        assert error(sums.sum(1), TORCH.sums(found, case.previous_z)) < 1e-6
        # A gradient may round the other way where sums are taken in another order.
        assert error(weight_grads.sum(1), weights) < 1e-4


@needs_compiler
@pytest.mark.parametrize(("channels", "images"), [(16, 2), (32, 3), (64, 5)])
def test_the_kernels_compute_what_torch_computes(channels, images, generator):
    case = Case(channels, images, "relu", generator)
    kernels = Convolutions(emulated("relu"), channels, ROOM, 2)
    check_forward(kernels, case)
    check_backward(kernels, case)


@needs_compiler
@pytest.mark.parametrize("activation", [name for name in ACTIVATIONS if name != "relu"])
def test_they_know_all_activations(activation, generator):
    case = Case(16, 1, activation, generator, networks=1)
    kernels = Convolutions(emulated(activation), 16, ROOM, 1)
    check_forward(kernels, case)
    check_backward(kernels, case)


@needs_compiler
def test_the_bits_of_a_network_do_not_depend_on_the_others_nor_on_the_processors(generator):
    case = Case(16, 2, "relu", generator, networks=3)
    given = (case.grad, case.z, case.coefficients, case.x, case.weights)
    alone = [tensor[1:2] if len(tensor) == 3 else tensor[:, 1:2].contiguous() for tensor in given]
    found = []
    for processors, (*passed, previous_z) in ((4, (*given, case.previous_z)), (1, (*alone, case.previous_z[1:2]))):
        kernels = Convolutions(emulated("relu"), 16, ROOM, processors)
        weight_grads = torch.empty(kernels.weight_grads_shape(passed[0]))
        z, sums = kernels.convolve(passed[3], passed[4], with_sums=True)
        found.append([z, sums, *kernels.convolve_backward(*passed, weight_grads=weight_grads, previous_z=previous_z)])
    for whole, one in zip(*found, strict=True):
        assert torch.equal(whole[1:2], one)


@needs_compiler
def test_what_is_not_finite_stays_so(generator):
    case = Case(16, 1, "relu", generator, networks=1)
    kernels = Convolutions(emulated("relu"), 16, ROOM, 1)
    case.previous_z[0, PIXEL, 3] = torch.nan
    found, sums = kernels.convolve(case.normed, case.weights, with_sums=True)
    assert found[0, PIXEL].isnan().all()  # every output channel sees the pixel
    assert sums.isnan().all()
    case.grad[0, PIXEL, 3] = torch.nan
    weight_grads = torch.empty(kernels.weight_grads_shape(case.grad))
    given = (case.grad, case.z, case.coefficients, case.x, case.weights)
    back, sums = kernels.convolve_backward(*given, weight_grads=weight_grads, previous_z=case.z)
    assert back[0, PIXEL].isnan().any()
    assert sums.isnan().any()
    assert weight_grads[..., 3, :].isnan().all()


@pytest.mark.parametrize(
    ("stage", "fitting"),
    [
        (Stage(("a",), 16, 16, Grid(32, 32, 3, 1, circular=False)), True),
        (Stage(("a",), 64, 64, Grid(8, 8, 3, 1, circular=False)), True),
        (Stage(("a",), 16, 32, Grid(32, 32, 3, 1, circular=False)), False),
        (Stage(("a",), 16, 16, Grid(32, 32, 3, 2, circular=False)), False),
        (Stage(("a",), 16, 16, Grid(32, 32, 1, 1, circular=False)), False),
        (Stage(("a",), 16, 16, Grid(32, 32, 3, 1, circular=True)), False),
        (Stage(("a",), 16, 16, Grid(16, 16, 3, 1, circular=False)), False),
        (Stage(("a",), 8, 8, Grid(64, 64, 3, 1, circular=False)), False),
        (Stage(("a",), 64, 64), False),
    ],
)
def test_only_convolutions_of_equal_channels_on_the_maps_of_the_paper_fit(stage, fitting):
    assert fits(stage) is fitting


def test_gpus_without_bfloat16_have_no_kernels(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert cuda_launches.library.__wrapped__(torch.device("cuda", 7), "relu") is None


@pytest.mark.gpu
@pytest.mark.parametrize("activation", ["relu", "selu", "tanh"])
@pytest.mark.parametrize(("channels", "images"), [(16, 37), (32, 37), (64, 37)])
def test_on_a_gpu_the_kernels_compute_what_torch_computes(channels, images, activation, generator):
    device = torch.device("cuda", 0)
    library = cuda_launches.library(device, activation)
    if library is None:
        pytest.skip("no nvcc")
    case = Case(channels, images, activation, generator, networks=3, device=device)
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    kernels = Convolutions(library, channels, 0, processors)
    assert kernels.fit
    check_forward(kernels, case)
    check_backward(kernels, case)
