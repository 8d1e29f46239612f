import copy
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from contracts.defaults import other_defaults
from contracts.models import MODELS, Recomputed
from contracts.states import assert_same, state_of
from contracts.traces import differences, trace_of
from orthosparse import init
from orthosparse.isometry import effective_density, gradient_flow, singular_values
from orthosparse.masking import attach
from orthosparse.orthogonality import singular_values_of


def randn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def filled(model, seed=0, gain=1.0):
    """Gaussian weights of variance gain^2 / fan-in and small biases, from a generator of their own."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            fan_in = parameter[0].numel() if parameter.dim() > 1 else 100
            parameter.copy_(torch.randn(parameter.shape, generator=g) * gain / fan_in**0.5)
    return model


def mlp(*sizes, act=nn.Tanh, gain=1.0, seed=0):
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), act())]
    return filled(nn.Sequential(*layers), seed, gain)


def by_batch_jacobian(model, x):
    """Oracle: the whole Jacobian of the batch as torch builds it, its diagonal blocks, their singular values."""
    full = torch.autograd.functional.jacobian(copy.deepcopy(model), x)
    batch, side = len(x), full.dim() - x.dim()
    blocks = torch.stack([full.select(side, i)[i].reshape(-1, x[0].numel()) for i in range(batch)])
    return torch.linalg.svdvals(blocks)


def convolutional(norm=nn.BatchNorm2d):
    layers = [nn.Conv2d(2, 4, 3, padding=1), norm(4), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    return filled(nn.Sequential(*layers, nn.Conv2d(4, 3, 3, stride=2), norm(3), nn.Flatten()))


@pytest.mark.parametrize("density", [0.02, 0.03, 0.05, 0.1, 0.3, 0.7, 1.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_a_linear_mlp_of_sparse_orthogonal_weights_is_an_isometry(density, dtype, tolerance, generator):
    sizes = [784, *[100] * 6, 10]
    model = nn.Sequential(*[nn.Linear(a, b, dtype=dtype) for a, b in pairwise(sizes)])
    for layer in model:
        init.sparse_orthogonal_(layer.weight, density=density, generator=generator)
    spectrum = singular_values(model, torch.randn(16, 784, dtype=dtype, generator=generator))
    assert spectrum.values.shape == (16, 10)
    assert spectrum.values.dtype == dtype
    assert float((spectrum.values - 1).abs().max()) <= tolerance
    assert spectrum.exact


@pytest.mark.parametrize("sizes", [(7, 9, 5), (5, 9, 7)])
def test_exact_values_are_those_of_the_explicit_jacobian(sizes):
    model, x = mlp(*sizes), randn(6, sizes[0])
    spectrum = singular_values(model, x)
    expected = by_batch_jacobian(model, x)
    torch.testing.assert_close(spectrum.values, expected, atol=1e-6, rtol=1e-5)
    assert spectrum.mean == pytest.approx(float(expected.mean()), rel=1e-5)
    assert spectrum.std == pytest.approx(float(expected.std(correction=0)), rel=1e-5)
    assert (spectrum.max, spectrum.min) == pytest.approx((float(expected.max()), float(expected.min())), rel=1e-4)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("method", ["exact", "matrix_free"])
def test_batch_norm_gives_the_diagonal_blocks_of_the_batch_jacobian(training, method, generator):
    model, x = convolutional().double().train(training), randn(5, 2, 8, 8, dtype=torch.float64)
    spectrum = singular_values(model, x, method=method, k=3, generator=generator)
    torch.testing.assert_close(spectrum.values, by_batch_jacobian(model, x)[:, :3], rtol=1e-5, atol=1e-10)


def test_samples_that_interact_are_noticed_in_any_direction():
    """Sample i sees only sample i + 1, with a nonlinearity, so that the block depends on nothing else."""

    class Next(nn.Module):
        def forward(self, x):
            return x * torch.cat([x[1:], torch.zeros_like(x[:1])])

    x = randn(5, 3, dtype=torch.float64)
    expected = torch.cat([x[1:], torch.zeros(1, 3)]).abs().sort(dim=1, descending=True).values
    torch.testing.assert_close(singular_values(Next(), x).values, expected)


@pytest.mark.parametrize(("reader", "read"), [(0, 1), (1, 0), (0, 2), (2, 0)])
def test_one_sample_that_reads_another_is_enough(reader, read):
    class Reads(nn.Module):
        def forward(self, x):
            return torch.stack([x[i] * (x[read] if i == reader else 2.0) for i in range(3)])

    x = randn(3, 4, dtype=torch.float64)
    expected = torch.full((3, 4), 2.0, dtype=torch.float64)
    expected[reader] = x[read].abs().sort(descending=True).values
    torch.testing.assert_close(singular_values(Reads(), x).values, expected)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("method", ["exact", "matrix_free"])
def test_nothing_is_left_behind(training, method):
    model = nn.Sequential(convolutional(), nn.Dropout(0.5), nn.Linear(3, 3)).train(training)
    model[1].train()
    model[2].weight.grad = torch.ones(3, 3)
    x = randn(4, 2, 8, 8).requires_grad_()
    before = state_of(model)
    modes, state, given = [m.training for m in model.modules()], torch.get_rng_state(), x.detach().clone()
    first = singular_values(model, x, method=method, generator=torch.Generator().manual_seed(0))
    again = singular_values(model, x, method=method, generator=torch.Generator().manual_seed(0))
    assert torch.equal(first.values, again.values)
    assert_same(before, model.state_dict())
    assert [m.training for m in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert [p.grad is not None for p in model.parameters()].count(True) == 1
    assert x.grad is None
    assert torch.equal(x, given)
    assert not any(m._forward_hooks for m in model.modules())


@pytest.mark.parametrize("measure", ["spectrum", "flow"])
def test_dropout_follows_the_generator_and_not_the_global_state(measure):
    model = nn.Sequential(nn.Linear(6, 40), nn.Dropout(0.5), nn.Linear(40, 3)).train()
    x = randn(4, 6)

    def found(seed):
        g = torch.Generator().manual_seed(seed)
        if measure == "spectrum":
            return singular_values(model, x, generator=g).values
        return torch.tensor(gradient_flow(model, lambda out, y: out.square().sum(), (x, None), generator=g).norm)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        first = found(0)
        torch.manual_seed(2)
        assert torch.equal(found(0), first)
        assert not torch.equal(found(1), first)


def test_recurrent_layers_keep_their_own_tensors():
    model, x = nn.LSTM(4, 5), randn(3, 2, 4)
    singular_values(model, x, output=0)
    effective_density(model, x, output=0)
    gradient_flow(model, lambda out, y: out[0].square().sum(), (x, None))
    assert all(tensor is getattr(model, name) for name, tensor in model.named_parameters())
    assert all(a is b for a, b in zip(model._flat_weights, model.parameters(), strict=True))


@pytest.mark.parametrize("name", ["0.0", "0.1", "0.2", "0.4"])
def test_through_stops_where_it_says_even_before_an_inplace_layer(name):
    model, x = nn.Sequential(convolutional().eval(), nn.Linear(3, 2)), randn(3, 2, 8, 8)
    cut = model[0][: int(name[-1]) + 1]
    expected = by_batch_jacobian(nn.Sequential(*cut, nn.Flatten()), x)
    torch.testing.assert_close(singular_values(model, x, through=name).values, expected, rtol=1e-4, atol=1e-6)


def test_through_needs_a_module_that_runs_once():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.act, self.unused = nn.Tanh(), nn.Tanh()
            self.alias = self.act

        def forward(self, x):
            return self.act(self.act(x))

    for name, message in (
        ("act", "ran 2 times"),
        ("alias", "ran 2 times"),
        ("unused", "ran 0 times"),
        ("absent", "name of a module"),
        ("", "name"),
    ):
        with pytest.raises(ValueError, match=message):
            singular_values(Twice(), randn(2, 3), through=name)


class Returns(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.inner, self.wrap = mlp(4, 3), wrap

    def forward(self, x):
        return self.wrap(self.inner(x))


@pytest.mark.parametrize(
    ("wrap", "output"),
    [
        (lambda y: {"logits": y}, "logits"),
        (lambda y: SimpleNamespace(logits=y), "logits"),
        (lambda y: (None, y), 1),
        (lambda y: [y.T], lambda out: out[0].T),
    ],
)
def test_output_picks_the_tensor(wrap, output):
    x = randn(5, 4)
    expected = singular_values(Returns(lambda y: y), x).values
    assert torch.equal(singular_values(Returns(wrap), x, output=output).values, expected)
    with pytest.raises(TypeError, match=r"output=lambda out: out.logits"):
        singular_values(Returns(wrap), x)
    with pytest.raises(ValueError, match="output: 'nothing' is not in"):
        singular_values(Returns(wrap), x, output="nothing")


def test_masks_and_other_parametrizations_are_seen_through():
    model, x = mlp(6, 5, act=nn.Identity), randn(2, 6)
    mask = torch.zeros(5, 6, dtype=torch.bool)
    mask[:, :2] = True
    attach(model, {"0": mask})
    expected = torch.linalg.svdvals(model[0].weight.detach()).expand(2, -1)
    torch.testing.assert_close(singular_values(model, x).values, expected, atol=1e-6, rtol=1e-5)
    turned = parametrizations.orthogonal(nn.Linear(6, 6))
    torch.testing.assert_close(singular_values(turned, x).values, torch.ones(2, 6), atol=1e-5, rtol=0)


NETS = {
    "tanh": (lambda: mlp(440, 400, 420), (1, 440)),
    "relu": (lambda: mlp(400, 420, 440, act=nn.ReLU, gain=2**0.5), (1, 400)),
    "conv": (
        lambda: filled(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.GELU(), nn.Conv2d(4, 3, 3))),
        (2, 3, 12, 12),
    ),
}


@pytest.mark.parametrize("name", NETS)
def test_matrix_free_values_agree_with_exact_ones(name, generator):
    make, shape = NETS[name]
    model, x = make(), randn(*shape)
    exact = singular_values(model, x, method="exact")
    free = singular_values(model, x, method="matrix_free", k=3, generator=generator)
    assert not free.exact
    assert float((free.values / exact.values[:, :3] - 1).abs().max()) < 1e-4
    assert float((free.values - exact.values[:, :3]).abs().max()) <= 3 * free.error * free.max
    assert abs(free.mean / exact.mean - 1) < 1e-2
    assert abs(free.mean - exact.mean) <= 3 * free.mean_error
    assert abs(free.std / exact.std - 1) < 1e-2
    assert free.products <= 2 * exact.products  # at this size it goes through the whole side, with two products each


def test_matrix_free_values_of_a_large_convolution_agree_with_its_fourier_transform(generator):
    """3072 singular values, known from the kernel alone, crowded at the top; a product is a convolution."""
    model = filled(nn.Conv2d(3, 3, 3, padding=1, padding_mode="circular"))
    exact = singular_values_of(model.weight.detach(), spatial=32).flatten().sort(descending=True).values
    free = singular_values(model, randn(1, 3, 32, 32), generator=generator)
    assert not free.exact
    assert abs(free.max / float(exact[0]) - 1) < min(1e-4, 3 * free.error)
    assert abs(free.mean / float(exact.mean()) - 1) < 1e-2
    assert abs(free.mean - float(exact.mean())) <= 3 * free.mean_error
    assert abs(free.std / float(exact.std()) - 1) < 3e-2
    assert free.min >= float(exact.min())
    assert free.products < 600


def test_more_probes_than_the_side_has_leave_no_error(generator):
    model, x = mlp(40, 30, 20), randn(3, 40, dtype=torch.float64)
    exact = singular_values(model.double(), x)
    free = singular_values(model, x, method="matrix_free", k=20, probes=50, generator=generator)
    torch.testing.assert_close(free.values, exact.values, rtol=1e-6, atol=1e-9)
    assert free.mean == pytest.approx(exact.mean, rel=1e-9)
    assert free.mean_error < 1e-9


def test_a_value_that_occurs_often_is_listed_often(generator):
    """An isometry closes its Krylov space at once; two outliers stand beside it."""
    model = nn.Linear(700, 600, bias=False)
    init.orthogonal_(model.weight, generator=generator)
    with torch.no_grad():
        model.weight[:2] *= 3
    free = singular_values(model, randn(1, 700), method="matrix_free", k=5, probes=8, generator=generator)
    torch.testing.assert_close(free.values, torch.tensor([[3.0, 3.0, 1.0, 1.0, 1.0]]), rtol=1e-5, atol=0)
    assert free.mean == pytest.approx(1 + 4 / 600, abs=3 * free.mean_error)
    assert free.products <= 2 * 3 * 8 + 32


def test_a_space_that_closes_is_opened_again(generator):
    """Rank 1: after the first block every new vector is zero up to rounding, or exactly."""
    model, (u, v) = nn.Linear(24, 20, bias=False).double(), (randn(20, seed=1), randn(24, seed=2))
    with torch.no_grad():
        model.weight.copy_(3 * torch.outer(u / u.norm(), v / v.norm()).double())
    free = singular_values(model, randn(1, 24).double(), method="matrix_free", k=20, probes=2, generator=generator)
    torch.testing.assert_close(free.values[0], torch.tensor([3.0, *[0.0] * 19]).double(), rtol=1e-6, atol=1e-7)
    assert free.mean == pytest.approx(3 / 20)


@pytest.mark.parametrize("method", ["exact", "matrix_free"])
def test_a_dead_network_has_zeros(method, generator):
    model = mlp(6, 5, gain=0.0)
    spectrum = singular_values(model, randn(2, 6), method=method, generator=generator)
    assert spectrum.max == spectrum.mean == spectrum.std == 0


@pytest.mark.parametrize("training", [False, True])
def test_chunks_change_nothing(training):
    model, x = convolutional().train(training), randn(3, 2, 8, 8)
    whole = singular_values(model, x)
    assert all(torch.allclose(singular_values(model, x, chunk=c).values, whole.values, atol=1e-6) for c in (1, 2, 7))


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(2, 3, 3),
        nn.Conv2d(2, 4, (3, 2), stride=(2, 3), padding=(1, 0), groups=2),
        nn.Conv2d(2, 3, 3, dilation=2, padding=2, padding_mode="circular", bias=False),
        nn.Conv2d(2, 3, 3, padding="same"),
        nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1, output_padding=1),
        nn.BatchNorm2d(2, affine=False).eval(),
        nn.BatchNorm2d(2, track_running_stats=False).eval(),
        nn.InstanceNorm2d(2),
        nn.MaxPool2d(3, 2, 1),
    ],
    ids=lambda layer: str(layer)[:40],
)
@pytest.mark.parametrize("chunk", [None, 1])
def test_every_geometry_has_both_products(layer, chunk, generator):
    model, x = filled(nn.Sequential(layer, nn.Flatten())).double(), randn(3, 2, 7, 8, dtype=torch.float64)
    for name, buffer in layer.named_buffers():
        buffer.fill_({"running_mean": 0.5, "running_var": 2.0}.get(name, 0))
    expected = by_batch_jacobian(model, x)[:, :2]
    free = singular_values(model, x, method="matrix_free", k=2, chunk=chunk, generator=generator)
    torch.testing.assert_close(free.values, expected, rtol=1e-6, atol=1e-10)


class Normalized(nn.Module):
    """Batch normalization by whichever function of torch's, arguments by position or by name."""

    def __init__(self, call):
        super().__init__()
        self.norm, self.call = nn.BatchNorm2d(2).eval(), call

    def forward(self, x):
        norm = self.norm
        return self.call(x, norm.running_mean, norm.running_var, norm.weight, norm.bias)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, mean, var, w, b: nn.functional.batch_norm(x, mean, var, w, b, False, 0.1, 1e-3),
        lambda x, mean, var, w, b: torch.batch_norm(x, w, b, mean, var, False, 0.1, 1e-3, False),
        lambda x, mean, var, w, b: torch.batch_norm(
            x, None, running_mean=mean, running_var=var, training=False, momentum=0.1, eps=1e-3, cudnn_enabled=False,
            bias=None,
        ),
        lambda x, mean, var, w, b: nn.functional.batch_norm(x, weight=w, running_var=var, running_mean=mean, bias=b),
        lambda x, mean, var, w, b: torch.native_batch_norm(x, w, b, mean, var, False, 0.1, 1e-3)[0],
    ],
    ids=["functional", "torch", "torch by name", "functional by name", "native"],
)  # fmt: skip
def test_every_spelling_of_batch_norm_has_its_own_order_of_arguments(call, generator):
    model, x = filled(Normalized(call)).double(), randn(3, 2, 3, 4, dtype=torch.float64)
    with torch.no_grad():
        for number, tensor in enumerate((*model.parameters(), model.norm.running_mean, model.norm.running_var)):
            tensor.copy_(torch.tensor([1.5, 0.5]) * (number + 1))
    expected = by_batch_jacobian(model, x)
    torch.testing.assert_close(singular_values(model, x).values, expected, rtol=1e-12, atol=1e-14)
    free = singular_values(model, x, method="matrix_free", k=2, generator=generator).values
    torch.testing.assert_close(free, expected[:, :2], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_norm_in_float32_hands_on_the_half_precision_it_got(dtype):
    layers = filled(nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.Conv2d(3, 2, 1), nn.Flatten()))
    model, x = layers.eval(), randn(2, 2, 4, 4)
    expected = singular_values(model, x).values
    model[0].to(dtype), model[2].to(dtype)
    assert model(x.to(dtype)).dtype == dtype
    values = singular_values(model, x.to(dtype)).values
    torch.testing.assert_close(values, expected, rtol=0.05, atol=0.02 * float(expected.max()))


def test_dtypes_that_torch_does_not_mix_are_not_mixed():
    model = nn.Sequential(nn.BatchNorm1d(2).double().eval(), nn.Flatten())
    with pytest.raises(RuntimeError):
        model(randn(3, 2))
    with pytest.raises(ValueError, match=r"^x: the model cannot take it \(RuntimeError: "):
        singular_values(model, randn(3, 2))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.LSTM(4, 5, batch_first=True)

    def forward(self, x):
        return self.inner(x)[0]


@pytest.mark.parametrize(
    "make",
    [
        Recurrent,
        lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(),
        lambda: nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.SiLU(), nn.RMSNorm(4)),
    ],
    ids=["lstm", "attention", "norms"],
)
def test_other_layers_have_both_products(make, generator):
    model, x = filled(make()).double(), randn(2, 3, 4, dtype=torch.float64)
    exact = singular_values(model, x)
    torch.testing.assert_close(exact.values, by_batch_jacobian(model, x), rtol=1e-6, atol=1e-10)
    free = singular_values(model, x, method="matrix_free", k=4, generator=generator)
    torch.testing.assert_close(free.values, exact.values[:, :4], rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("surroundings", [torch.no_grad, torch.inference_mode])
def test_it_differentiates_whatever_the_surroundings(surroundings):
    model, x = mlp(4, 3), randn(2, 4)
    expected = singular_values(model, x).values
    with surroundings():
        assert torch.equal(singular_values(model, randn(2, 4)).values, expected)


@pytest.mark.parametrize("method", ["exact", "matrix_free"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("inner", [mlp(4, 6, 3), convolutional()], ids=["mlp", "convolutional"])
def test_layers_that_are_computed_again_in_the_backward_pass_are_measured_as_others_are(inner, training, method):
    model = Recomputed(inner).double().train(training)
    x = randn(3, 4, dtype=torch.float64) if isinstance(inner[0], nn.Linear) else randn(3, 2, 8, 8, dtype=torch.float64)
    before = trace_of(model)
    expected, found = (
        singular_values(each, x, method=method, k=2, generator=torch.Generator().manual_seed(0)).values
        for each in (inner, model)
    )
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-12)
    assert differences(before, trace_of(model)) == []


@pytest.mark.parametrize("method", ["exact", "matrix_free"])
@pytest.mark.parametrize("name", MODELS)
def test_a_default_device_and_dtype_do_not_matter(name, method):
    model, (x, _) = MODELS[name].make(), MODELS[name].batch(samples=3)

    def values():
        return singular_values(model, x, method=method, k=2, generator=torch.Generator().manual_seed(0)).values

    expected = values()
    with other_defaults():
        found = values()
    assert torch.equal(found, expected)


def test_half_precision_is_decomposed_in_float32():
    model, x = mlp(8, 6).bfloat16(), randn(2, 8).bfloat16()
    spectrum = singular_values(model, x)
    assert spectrum.values.dtype == torch.float32
    torch.testing.assert_close(spectrum.values, singular_values(model.float(), x.float()).values, rtol=0.05, atol=0.02)


def test_k_lists_the_largest_and_the_statistics_keep_all():
    model, x = mlp(6, 5), randn(2, 6)
    all_of_them, two = singular_values(model, x), singular_values(model, x, k=2)
    assert torch.equal(two.values, all_of_them.values[:, :2])
    assert (two.mean, two.min, two.std) == (all_of_them.mean, all_of_them.min, all_of_them.std)


def test_a_spectrum_reads_like_its_values():
    spectrum = singular_values(mlp(6, 5), randn(2, 6))
    assert np.array_equal(np.asarray(spectrum), spectrum.values.numpy())
    assert torch.equal(spectrum[0], spectrum.values[0])
    assert spectrum.shape == (2, 5)
    assert len(spectrum) == 2
    assert repr(spectrum).startswith("Spectrum(2 x 5 values: mean ")
    page = spectrum._repr_html_()
    assert page.count("<rect") == len({round(float(v) / spectrum.max * 40 - 0.5) for v in spectrum.values.flatten()})


def test_the_matrix_free_repr_says_that_it_estimates(generator):
    spectrum = singular_values(mlp(60, 50), randn(1, 60), method="matrix_free", probes=4, steps=3, generator=generator)
    assert "the 1 largest values" in repr(spectrum)
    assert "+-" in repr(spectrum)
    assert f"{spectrum.products} products" in repr(spectrum)


class InPlace(nn.Module):
    def forward(self, x):
        return x.mul_(2)


class Overflow(nn.Module):
    def forward(self, x):
        return x * torch.inf


@pytest.mark.parametrize(
    ("model", "x", "options", "error", "message"),
    [
        (nn.Linear(3, 2), torch.ones(2, 3, dtype=torch.int64), {}, TypeError, "floating-point tensor; got torch.int64"),
        (nn.Linear(3, 2), torch.ones(2, 3, dtype=torch.complex64), {}, TypeError, "floating-point tensor"),
        (nn.Linear(3, 2), [[1.0, 2.0, 3.0]], {}, TypeError, "got list"),
        (nn.Linear(3, 2), torch.ones(0, 3), {}, ValueError, "at least one sample"),
        (InPlace(), torch.ones(2, 3), {}, ValueError, "changes its input in place"),
        (nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 2)), torch.ones(2, 3), {}, ValueError, "in place"),
        (nn.Linear(3, 2), torch.ones(2, 3), {"output": torch.sum}, ValueError, "2 samples of x as its first side"),
        (nn.Linear(3, 2), torch.ones(2, 3), {"output": torch.Tensor.detach}, ValueError, "does not depend on x"),
        (nn.Linear(3, 2), torch.ones(2, 3), {"output": lambda y: y > 0}, TypeError, "floating-point output"),
        (Overflow(), torch.ones(2, 3), {}, ValueError, "not finite"),
        (nn.Linear(3, 2), torch.ones(2, 3), {"k": 3}, ValueError, "k: expected at most 2"),
        (nn.Linear(3, 2), torch.ones(2, 3), {"k": 0}, ValueError, "k: expected an integer of at least 1; got 0"),
        (nn.Linear(3, 2), torch.ones(2, 3), {"chunk": True}, TypeError, "chunk: expected an integer; got True"),
        (nn.Linear(3, 2), torch.ones(2, 3), {"probes": 1}, ValueError, "probes: expected an integer of at least 2"),
        (nn.Linear(3, 2), torch.ones(2, 3), {"tolerance": "a"}, TypeError, r"tolerance: expected .*; got 'a' \(str\)"),
        (
            nn.Linear(3, 2),
            torch.ones(2, 3),
            {"tolerance": -1.0},
            ValueError,
            "tolerance: expected a finite number of at least 0",
        ),
        (nn.Linear(3, 2), torch.ones(2, 3), {"generator": 0}, TypeError, "generator: expected a torch.Generator"),
        (nn.Linear(3, 2), torch.ones(2, 3), {"method": "fast"}, ValueError, "method: expected one of auto, exact"),
    ],
)
def test_bad_input_is_named(model, x, options, error, message):
    with pytest.raises(error, match=message):
        singular_values(model, x, **options)


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["exact", "matrix_free"])
def test_a_gpu_gives_the_same_values(method):
    model, x = convolutional().double(), randn(3, 2, 8, 8, dtype=torch.float64)
    options = {"method": method, "k": 3}
    here = singular_values(model, x, **options, generator=torch.Generator().manual_seed(0))
    there = singular_values(model.cuda(), x.cuda(), **options, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(there.values.cpu(), here.values, rtol=1e-6, atol=1e-9)
    assert there.mean == pytest.approx(here.mean, rel=1e-6)


@pytest.mark.parametrize("method", ["svd", None, 3, np.ones((2, 2)), torch.ones(2)], ids=str)
def test_an_unknown_method_is_named_whatever_it_is(method):
    with pytest.raises(ValueError, match="method: expected one of auto, exact, matrix_free; got"):
        singular_values(nn.Linear(3, 3), torch.ones(1, 3), method=method)


@pytest.mark.parametrize("x", [(torch.ones(2, 3),), {"input": torch.ones(2, 3)}, None])
def test_only_integers_are_taken_for_tokens(x):
    with pytest.raises(TypeError, match=f"x: expected a floating-point tensor; got {type(x).__name__}$"):
        singular_values(nn.Linear(3, 3), x)
    with pytest.raises(TypeError, match=r"got torch.int64. A model of integers \(tokens\)"):
        singular_values(nn.Linear(3, 3), torch.ones(2, 3, dtype=torch.int64))


@pytest.mark.parametrize("method", ["exact", "matrix_free"])
def test_anomaly_detection_does_not_matter(method):
    model, x = mlp(6, 5, 4), randn(3, 6)

    def values():
        return singular_values(model, x, method=method, k=2, generator=torch.Generator().manual_seed(0)).values

    expected = values()
    with torch.autograd.set_detect_anomaly(True):
        found = values()
        assert torch.is_anomaly_enabled()
    assert torch.equal(found, expected)
