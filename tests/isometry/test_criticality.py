import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, special
from torch import nn

from contracts.defaults import other_defaults
from orthosparse import init
from orthosparse.isometry import critical_point, mean_field, singular_values
from orthosparse.isometry._gaussian import ACTIVATIONS, elementwise, moments


def normal_cdf(x):
    return 0.5 * (1 + math.erf(x / math.sqrt(2)))


@pytest.mark.parametrize("q", [1e-6, 0.025, 1.0, 30.0])
def test_the_linear_point_is_one_and_zero(q):
    point = critical_point("linear", q=q)
    assert point.sigma_w == pytest.approx(1, abs=1e-13)
    assert point.sigma_b == 0
    assert point.isometry
    assert point.variance(10_000) == 0
    assert point.depth_scale == point.variance_scale == math.inf
    assert "scale the input" in point.note


@pytest.mark.parametrize("q", [0.01, 0.05, 0.3, 1.0, 5.0])
def test_hard_tanh_follows_its_closed_form(q):
    """f' is 1 inside [-1, 1]: mu_1 = mu_2 = erf(1 / sqrt(2 q)); E f^2 by parts."""
    inside = math.erf(1 / math.sqrt(2 * q))
    square = q * inside - math.sqrt(2 * q / math.pi) * math.exp(-1 / (2 * q)) + 1 - inside
    point = critical_point("hardtanh", q=q)
    assert point.sigma_w == pytest.approx(inside**-0.5, rel=1e-12)
    assert point.sigma_b**2 == pytest.approx(q - square / inside, rel=1e-10, abs=1e-14)
    assert point.spread == pytest.approx(1 / inside - 1, abs=1e-12)
    assert point.chi == pytest.approx(1, abs=1e-12)
    assert point.isometry


@pytest.mark.parametrize("q", [0.01, 1.0, 4.0])
def test_erf_follows_its_closed_form(q):
    """E erf(sqrt(q) z)^2 = (2 / pi) asin(2 q / (1 + 2 q)), and E f'^2 = (4 / pi) / sqrt(1 + 4 q)."""
    point = critical_point("erf", q=q)
    slope = 4 / math.pi / math.sqrt(1 + 4 * q)
    assert point.sigma_w == pytest.approx(slope**-0.5, rel=1e-12)
    assert point.sigma_b**2 == pytest.approx(q - 2 / math.pi * math.asin(2 * q / (1 + 2 * q)) / slope, abs=1e-12)


@pytest.mark.parametrize(("name", "leak"), [("relu", 0.0), ("leaky_relu", 0.01)])
def test_relu_gets_the_gain_of_he_and_no_isometry(name, leak):
    point = critical_point(name, depth=100)
    assert point.sigma_w == pytest.approx(math.sqrt(2 / (1 + leak**2)), rel=1e-12)
    assert point.sigma_b == pytest.approx(0, abs=1e-7)
    assert not point.isometry
    assert "no dynamical isometry" in point.note
    # mu_2 / mu_1^2 - 1 = 2 (1 + a^4) / (1 + a^2)^2 - 1 at any q
    assert point.spread == pytest.approx(2 * (1 + leak**4) / (1 + leak**2) ** 2 - 1, rel=1e-9)
    assert point.variance(100) == pytest.approx(100 * point.spread, rel=1e-9)


def test_the_tanh_line_passes_the_point_of_the_paper():
    """Which is rounded: the q between 0.02588 and 0.02592 give both numbers."""
    point = critical_point("tanh", q=0.0259)
    assert (round(point.sigma_w, 4), round(point.sigma_b, 5)) == (1.0247, 0.00448)
    assert critical_point("tanh") == point
    assert mean_field("tanh", 1.0247, 0.00448).q == pytest.approx(0.0259, abs=2e-4)
    assert mean_field("tanh", 1.0247, 0.00448).chi == pytest.approx(1, abs=1e-4)
    assert point.isometry
    assert not point.note
    assert point.depth_scale == math.inf
    assert point.variance(1000) == pytest.approx(4.263, abs=1e-3)


def test_the_tanh_line_leaves_one_and_zero_as_its_expansion_says():
    """sigma_w^2 = 1 + 2 q + O(q^2), and sigma_b and the spread vanish with q."""
    for q in (1e-3, 1e-4):
        point = critical_point("tanh", q=q)
        assert point.sigma_w**2 == pytest.approx(1 + 2 * q, abs=10 * q**2)
        assert point.spread == pytest.approx(8 * q**2, rel=20 * q)
        assert point.sigma_b < 2 * q**1.5


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
@pytest.mark.parametrize("q", [0.02, 1.0])
def test_moments_agree_with_adaptive_quadrature(name, q):
    """Scipy's, which is told where kinks may be."""
    function = elementwise(name)
    scale = math.sqrt(q)

    def both(z):
        x = torch.tensor([scale * z], dtype=torch.float64, requires_grad=True)
        y = function(x)
        (slope,) = torch.autograd.grad(y.sum(), x)
        return float(y.detach()), float(slope)

    def expectation(integrand):
        kinks = [k / scale for k in (-1.0, 0.0, 1.0) if abs(k / scale) < 9]
        edges = sorted({-12.0, 12.0, *kinks})
        pieces = [
            integrate.quad(lambda z: integrand(z) * math.exp(-z * z / 2), a, b, epsabs=1e-11, epsrel=1e-11, limit=60)[0]
            for a, b in pairwise(edges)
        ]
        return sum(pieces) / math.sqrt(2 * math.pi)

    found = moments(function, q).tolist()
    assert found[0] == pytest.approx(expectation(lambda z: both(z)[0] ** 2), rel=1e-8)
    assert found[1] == pytest.approx(expectation(lambda z: both(z)[1] ** 2), rel=1e-8)
    assert found[2] == pytest.approx(expectation(lambda z: both(z)[1] ** 4), rel=1e-8)


def test_a_kink_anywhere_is_found():
    """E of the derivative of |x - c| is 1, and of a ramp that begins at c it is P(z > c)."""
    for c in (0.1234567, -2.7182818, 1e-5):
        square = moments(lambda x, c=c: torch.relu(x - c), 1.0).tolist()
        assert square[1] == pytest.approx(1 - normal_cdf(c), abs=1e-12)
        assert square[0] == pytest.approx(
            (1 + c * c) * special.ndtr(-c) - c * math.exp(-c * c / 2) / math.sqrt(2 * math.pi)
        )


@pytest.mark.parametrize("name", ["tanh", "erf", "hardtanh", "gelu", "silu", "elu"])
@pytest.mark.parametrize("depth", [10, 1000])
def test_a_depth_gets_the_largest_variance_that_keeps_its_spectrum(name, depth):
    point = critical_point(name, depth=depth, variance=0.05)
    assert point.variance(depth) == pytest.approx(0.05, rel=1e-6)
    assert point.chi == pytest.approx(1, abs=1e-12)
    assert critical_point(name, q=1.2 * point.q).variance(depth) > 0.05


def test_modules_and_functions_are_as_good_as_names():
    expected = critical_point("tanh", q=0.1)
    assert critical_point(nn.Tanh(), q=0.1) == expected
    assert critical_point(nn.ReLU(inplace=True)) == critical_point("relu")
    assert critical_point(lambda x: torch.sinh(x) / torch.cosh(x), q=0.1).sigma_w == pytest.approx(expected.sigma_w)
    half = nn.PReLU(init=0.5)
    assert critical_point(half).sigma_w == pytest.approx(math.sqrt(2 / 1.25), rel=1e-12)
    assert half.weight.dtype == torch.float32


def test_an_unstable_variance_is_told():
    point = critical_point("gelu", q=0.05)
    assert point.slope > 1
    assert "not stable" in point.note


@pytest.mark.parametrize(("sigma_w", "sigma_b"), [(0.8, 0.0), (1.5, 0.1), (1.2, 0.3)])
def test_mean_field_is_where_iteration_ends(sigma_w, sigma_b):
    point = mean_field("tanh", sigma_w, sigma_b)
    q, function = 1.0, elementwise("tanh")
    for _ in range(60):
        q = sigma_w**2 * float(moments(function, q)[0]) + sigma_b**2
    assert point.q == pytest.approx(q, rel=1e-6, abs=1e-6)
    assert point.chi == pytest.approx(sigma_w**2 * float(moments(function, max(point.q, 1e-10))[1]), rel=1e-9)
    assert point.slope < 1


def test_a_variance_that_dies_out_is_told():
    """The paper's (1, 0) for tanh: critical only in the limit."""
    point = mean_field("tanh", 1.0)
    assert point.q == 0
    assert point.chi == pytest.approx(1, abs=1e-9)
    assert "vanishes" in point.note
    assert mean_field("relu", 1.0).chi == pytest.approx(0.5, rel=1e-9)


def test_the_slope_is_the_derivative_of_the_variance_map():
    point, function = mean_field("gelu", 1.5, 0.2), elementwise("gelu")
    step = 1e-5
    up, down = (1.5**2 * float(moments(function, point.q * (1 + s))[0]) for s in (step, -step))
    assert point.slope == pytest.approx((up - down) / (2 * step * point.q), rel=1e-6)


def mixing(width, generator):
    """A random orthogonal map of R^width in O(n log n): signs, the Hartley transform, a permutation."""
    signs = torch.randint(0, 2, (width,), generator=generator) * 2.0 - 1
    order = torch.randperm(width, generator=generator)

    def apply(x):
        turned = torch.fft.fft(x.double() * signs, norm="ortho")
        return (turned.real - turned.imag)[..., order]

    return apply


@pytest.mark.parametrize("name", ["tanh", "hardtanh", "erf", "elu"])
def test_a_wide_forward_pass_keeps_the_variance_and_the_gradients(name, generator):
    """Width 4096, 40 orthogonal layers: a mean of 4096 squares varies by sqrt(2 / 4096) = 2 % a layer, and the product
    of 40 factors near 1 by some of these."""
    point, width, depth = critical_point(name, q=0.2), 4096, 40
    function = elementwise(name)
    h = math.sqrt(point.q) * torch.randn(width, generator=generator, dtype=torch.float64)
    tangents = torch.randn(8, width, generator=generator, dtype=torch.float64)
    before = tangents.square().sum()
    for _ in range(depth):
        turn = mixing(width, generator)
        bias = point.sigma_b * torch.randn(width, generator=generator, dtype=torch.float64)
        leaf = h.clone().requires_grad_()
        value = function(leaf)
        (slope,) = torch.autograd.grad(value.sum(), leaf)
        h = point.sigma_w * turn(value.detach()) + bias
        tangents = point.sigma_w * turn(slope * tangents)
    assert float(h.square().mean()) == pytest.approx(point.q, rel=0.1)
    assert float(tangents.square().sum() / before) ** (1 / depth) == pytest.approx(1, abs=5e-3)


def tanh_network(point, width, depth, density, generator):
    layers = []
    for _ in range(depth):
        layer = nn.Linear(width, width, dtype=torch.float64)
        if density == 1:
            init.orthogonal_(layer.weight, gain=point.sigma_w, generator=generator)
        else:
            init.sparse_orthogonal_(layer.weight, density=density, gain=point.sigma_w, generator=generator)
        nn.init.normal_(layer.bias, std=point.sigma_b, generator=generator)
        layers += [nn.Tanh(), layer]
    return nn.Sequential(*layers)


@pytest.mark.parametrize("density", [0.02, 0.125, 0.5, 1.0])
def test_the_critical_point_is_the_same_at_any_density(density, generator):
    point, width = critical_point("tanh", q=0.1), 512
    model = tanh_network(point, width, 15, density, generator)
    h = math.sqrt(point.q) * torch.randn(1, width, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        for act, layer in pairwise(model):
            if not isinstance(act, nn.Tanh):
                continue
            slopes = 1 - h.tanh().square()
            # One layer's Jacobian W D has mean squared singular value sigma_w^2 mean D^2, whatever the zeros of W.
            chi = point.sigma_w**2 * float(slopes.square().mean())
            squares = torch.linalg.svdvals(layer.weight * slopes).square()
            assert float(squares.mean()) == pytest.approx(chi, rel=1e-12)
            h = layer(h.tanh())
            assert float(h.square().mean()) == pytest.approx(point.q, rel=0.25)
            assert chi == pytest.approx(1, abs=0.05)


def test_the_spectrum_of_dense_orthogonal_layers_is_the_predicted_one(generator):
    """Mean and variance of 2 x 384 squared singular values after 20 layers, predicted 1 and 0.79 for infinite width."""
    point, width, depth = critical_point("tanh", q=0.1), 384, 20
    model = tanh_network(point, width, depth, 1.0, generator)
    x = math.sqrt(point.q) * torch.randn(2, width, generator=generator, dtype=torch.float64)
    squares = singular_values(model, x).values.square()
    assert float(squares.mean()) == pytest.approx(1, abs=0.15)
    assert float(squares.var() / squares.mean() ** 2) == pytest.approx(point.variance(depth), rel=0.2)


@pytest.mark.parametrize(
    ("activation", "message"),
    [
        (nn.Softmax(-1), "elementwise"),
        (nn.LayerNorm(6), "elementwise"),
        (nn.GLU(), "elementwise|shape"),
        (lambda x: x - x.mean(), "elementwise"),
        (lambda x: torch.nn.functional.dropout(x, 0.5), "elementwise"),
        (lambda x: x[..., :1], "shape"),
        (torch.sign, "derivative that is not zero"),
        ("thanh", "activation: expected one of .*tanh"),
        ("sigmoid", "no critical point"),
    ],
)
def test_activations_without_a_point_are_named(activation, message):
    state = torch.get_rng_state()
    with pytest.raises(ValueError, match=message):
        critical_point(activation)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "options", [{"q": 0.0}, {"q": -1.0}, {"q": math.nan}, {"depth": 0}, {"depth": 9, "variance": 0}]
)
def test_bad_numbers_are_named(options):
    with pytest.raises(ValueError, match="expected a positive number"):
        critical_point("tanh", **options)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: critical_point("tanh", q="a"), "q"),
        (lambda: critical_point("tanh", q=True), "q"),
        (lambda: critical_point("tanh", depth=[3]), "depth"),
        (lambda: critical_point("tanh", depth=3, variance=None), "variance"),
        (lambda: mean_field("tanh", None), "sigma_w"),
        (lambda: mean_field("tanh", 1.0, "a"), "sigma_b"),
        (lambda: mean_field("tanh", 1.0, 0.1, start=1j), "start"),
    ],
)
def test_what_is_no_number_is_named(call, name):
    with pytest.raises(
        TypeError, match=rf"{name}: expected a (positive number|finite number of at least 0); got .* \(\w+\)"
    ):
        call()


def test_numbers_of_numpy_are_numbers():
    assert critical_point("tanh", q=np.float32(0.5)).q == 0.5
    assert mean_field("tanh", np.float64(1.1)) == mean_field("tanh", 1.1)


@pytest.mark.parametrize("activation", ["tanh", "relu", nn.GELU(), torch.erf])
def test_a_default_device_and_dtype_do_not_matter(activation):
    expected = critical_point(activation), mean_field(activation, 0.9, 0.1)
    with other_defaults():
        assert (critical_point(activation), mean_field(activation, 0.9, 0.1)) == expected


def test_other_types_are_refused():
    with pytest.raises(TypeError, match="activation"):
        critical_point(nn.Tanh)
    with pytest.raises(TypeError, match="activation"):
        critical_point(3)
    with pytest.raises(ValueError, match="sigma_b"):
        mean_field("tanh", 1.0, -0.1)
    with pytest.raises(ValueError, match="without bound"):
        mean_field("relu", 2.0)
