"""The mean-field (sigma_w, sigma_b) at which gradients neither vanish nor explode, for any elementwise activation.

Pre-activations of a wide network are Gaussian, with variance q' = sigma_w^2 E[f(sqrt(q) z)^2] + sigma_b^2 after the
next layer, and the squared singular values of one layer's Jacobian have mean chi = sigma_w^2 E[f'(sqrt(q) z)^2] (Poole
et al. 2016, Schoenholz et al. 2017). A critical point preserves q and has chi = 1; the critical points of an activation
form a line, parametrized by q.

For weights that are orthogonal times sigma_w the spectrum of J J^T follows from its S-transform (Pennington et al.
2017). A distribution with moments m_1, m_2 has S(z) = (1 + (1 - m_2 / m_1^2) z + ...) / m_1, and S is multiplicative.
W W^T is sigma_w^2 times the identity, so S is the constant 1 / sigma_w^2; the slopes D^2 have m_k = mu_k = E[f'^(2k)].
After L layers m_1 = chi^L and m_2 / m_1^2 - 1 = L (mu_2 / mu_1^2 - 1).

The critical point does not depend on which entries of W are zero: |W f| = sigma_w |f| and tr(D W W^T D) = sigma_w^2
tr(D^2) hold for every orthogonal W, at any density. The variance of the spectrum takes W to be free of D, as a dense
random one is. A sparse one mixes less, and its variance is larger: with tanh, width 512, 100 layers and q = 0.02, 0.27
is predicted, and the mean over two draws was 0.27 for density 1, 0.37 for 0.5, 0.49 for 0.125 and 0.70 for 0.03.
"""

import math
from dataclasses import dataclass

from orthosparse.checks import check_number, check_positive
from orthosparse.isometry._gaussian import Activation, elementwise, moments
from orthosparse.tables import html_table

_DEFAULT_Q = 0.0259  # gives the paper's (1.0247, 0.00448) for tanh
_GRID = [10 ** (exponent / 2) for exponent in range(-20, 7)]  # values of q, from 1e-10 to 1e3
_FLAT = 1e-6  # a spread per layer below it counts as zero
_ROUNDING = 1e-11  # relative to q: how far sigma_b^2 may lie below 0
_EPSILON = 1e-14  # relative to q: a smaller sigma_b^2 is rounding
_LARGEST = 700.0  # its exponential still fits in float64
_LEAST_Q = 1e-10  # a variance below it counts as vanishing


@dataclass(frozen=True)
class MeanField:
    """A point (sigma_w, sigma_b) for an activation, and how an infinitely wide network behaves there.

    Attributes:
        sigma_w: gain of orthogonal weights (or std times sqrt(fan-in) of Gaussian ones).
        sigma_b: std of the biases.
        q: variance of the pre-activations, which stays the same from layer to layer.
        chi: mean squared singular value of one layer's Jacobian; 1 at a critical point.
        slope: derivative of the variance map at q. If it is below 1, variances near q approach it; if it is 1, any
            variance is preserved.
        spread: mu_2 / mu_1^2 - 1, where mu_k is the mean of the 2k-th power of the activation's derivative. One layer
            adds this much to the relative variance of the squared singular values.
        isometry: whether orthogonal weights can give dynamical isometry with this activation, that is, whether `spread`
            goes to 0 somewhere on its critical line, so that at any depth all singular values can be near 1.
        note: what to know before using the point; empty if there is nothing.
    """

    sigma_w: float
    sigma_b: float
    q: float
    chi: float
    slope: float
    spread: float
    isometry: bool
    note: str = ""

    @property
    def depth_scale(self) -> float:
        """Number of layers over which gradients change by a factor e; infinite at a critical point.

        Differences between inputs change at the same rate.
        """
        return _layers(self.chi)

    @property
    def variance_scale(self) -> float:
        """Number of layers over which the distance of a variance from q changes by a factor e."""
        return _layers(self.slope)

    def _repr_html_(self) -> str:
        figures = {name: getattr(self, name) for name in ("sigma_w", "sigma_b", "q", "chi", "slope", "spread")}
        cells = [f"{figure:.6g}" for figure in figures.values()] + ["yes" if self.isometry else "no"]
        return html_table([*figures, "isometry"], [cells], [self.note] if self.note else [])

    def variance(self, depth: int) -> float:
        """Return the predicted variance of the squared singular values of `depth` layers with orthogonal weights."""
        growth = 2 * depth * math.log(self.chi) if self.chi > 0 else -math.inf
        return depth * self.spread * math.exp(growth) if growth < _LARGEST else math.inf


def critical_point(
    activation: str | Activation, *, q: float | None = None, depth: int | None = None, variance: float = 0.1
) -> MeanField:
    """Return the point with chi = 1 that preserves the variance `q`.

    The density does not matter: exactly orthogonal weights have the same critical point at any density. (Only the
    predicted `variance` assumes weights that mix well, as dense ones do.) If the activation has no dynamical isometry
    (ReLU), the gain is the one that keeps the mean squared singular value at 1, like He's, and `note` says so.

    Args:
        activation: a name ("tanh", "relu", ...), a module, or any elementwise function of a tensor.
        q: variance of the pre-activations. By default, the one that suits `depth`; without a depth, 0.0259, which gives
            the (1.0247, 0.00448) of the paper's 1000-layer tanh networks.
        depth: number of layers. Takes the largest q up to 1 for which the variance of the squared singular values after
            these layers is at most `variance`, or the q with the smallest variance if there is none. Ignored if q is
            given.

    Raises:
        TypeError: a number has the wrong type.
        ValueError: the activation is unknown or not elementwise, its derivative is zero, or there is no critical point
            at this q.

    Example:
        >>> point = critical_point("tanh", q=0.0259)
        >>> round(point.sigma_w, 4), round(point.sigma_b, 5)
        (1.0247, 0.00448)
        >>> round(critical_point("relu").sigma_w ** 2, 12), critical_point("relu").isometry
        (2.0, False)
    """
    function = elementwise(activation)
    for name, number in (("q", q), ("depth", depth)):
        if number is not None:
            check_positive(name, number)
    check_positive("variance", variance)
    line = _critical_line(function)
    if q is None:
        q = _DEFAULT_Q if depth is None else _largest_q(function, line, variance / depth)
    sigma_w, sigma_b = _sigmas(function, q)
    return _described(function, sigma_w, sigma_b, q, line)


def mean_field(activation: str | Activation, sigma_w: float, sigma_b: float = 0.0, *, start: float = 1.0) -> MeanField:
    """Return how a network behaves at any point (sigma_w, sigma_b), critical or not.

    The variance of the pre-activations begins at `start` and converges to `q`.

    Args:
        activation: as in `critical_point`.
        sigma_w: gain of orthogonal weights, or standard deviation of the weights times sqrt(fan-in).
        sigma_b: standard deviation of the biases.

    Raises:
        ValueError: the variance grows without bound.

    Example:
        >>> round(mean_field("tanh", 1.0247, 0.00448).q, 4)
        0.0259
    """
    function = elementwise(activation)
    check_positive("sigma_w", sigma_w)
    check_number("sigma_b", sigma_b, least=0)
    check_positive("start", start)
    q = _settled(function, sigma_w, sigma_b, start)
    return _described(function, sigma_w, sigma_b, q, _critical_line(function))


def _layers(factor: float) -> float:
    rate = abs(math.log(factor)) if factor > 0 else math.inf
    return math.inf if rate < 1e-12 else 1 / rate


def _sigmas(function: Activation, q: float) -> tuple[float, float]:
    """Return sigma_w from chi = 1, and sigma_b from the fixed point."""
    square, mu_1, _, _ = moments(function, q).tolist()
    if mu_1 == 0:
        raise ValueError("activation: expected a derivative that is not zero everywhere; chi cannot be 1")
    rest = q - square / mu_1
    if rest < -_ROUNDING * q:
        raise ValueError(f"q: no critical point at {q:g}, where sigma_b^2 would be {rest:.3g}; try another variance")
    return mu_1**-0.5, math.sqrt(rest) if rest > _EPSILON * q else 0.0


def _critical_line(function: Activation) -> dict[float, float]:
    """Return the spread per layer by q, for all q of the grid that have a critical point."""
    line = {}
    for q in _GRID:
        square, mu_1, mu_2, _ = moments(function, q).tolist()
        if mu_1 > 0 and q - square / mu_1 >= -_ROUNDING * q:
            line[q] = mu_2 / mu_1**2 - 1
    return line


def _largest_q(function: Activation, line: dict[float, float], spread: float) -> float:
    """Return the largest q up to 1 with at most this spread, or the q with the smallest spread if there is none."""
    candidates = {q: value for q, value in line.items() if q <= 1}
    if not candidates:
        raise ValueError("activation: no critical point with a variance up to 1; pass q")
    fitting = [q for q, value in candidates.items() if value <= spread]
    if not fitting:
        return min(candidates, key=lambda q: (round(candidates[q], 9), abs(math.log(q / _DEFAULT_Q))))
    low = max(fitting)
    high = min((q for q in candidates if q > low), default=low)
    for _ in range(40):
        middle = math.sqrt(low * high)
        _, mu_1, mu_2, _ = moments(function, middle).tolist()
        low, high = (middle, high) if mu_2 / mu_1**2 - 1 <= spread else (low, middle)
    return low


def _settled(function: Activation, sigma_w: float, sigma_b: float, start: float) -> float:
    """Follow the variance map from `start` to the first fixed point."""

    def change(q: float) -> float:
        difference = sigma_w**2 * float(moments(function, q)[0]) + sigma_b**2 - q
        return 0.0 if abs(difference) <= _ROUNDING * q else difference

    direction = change(start)
    if direction == 0:
        return start
    factor = 2.0 if direction > 0 else 0.5
    near, far = start, start * factor
    while change(far) * direction > 0:
        near, far = far, far * factor
        if far > 1e9:
            raise ValueError(f"sigma_w: the variance of the activations grows without bound at {sigma_w!r}")
        if far < _LEAST_Q:
            return 0.0
    for _ in range(60):
        middle = math.sqrt(near * far)
        near, far = (middle, far) if change(middle) * direction > 0 else (near, middle)
    return far


def _described(function: Activation, sigma_w: float, sigma_b: float, q: float, line: dict[float, float]) -> MeanField:
    near = max(q, _LEAST_Q)  # for a vanishing variance the limit, on both sides of a kink at 0
    _, mu_1, mu_2, curved = moments(function, near).tolist()
    # d/dq E[g(sqrt(q) z)] = E[g(sqrt(q) z) (z^2 - 1)] / (2 q), by differentiating the density.
    slope = sigma_w**2 * curved / (2 * near)
    spread = max(0.0, mu_2 / mu_1**2 - 1) if mu_1 > 0 else 0.0
    least = min(line.values(), default=math.inf)
    notes = []
    if least > _FLAT:
        notes.append(
            f"no dynamical isometry: even orthogonal weights spread the squared singular values by {least:.3g} or more "
            "per layer, and the gain only keeps their mean at 1 (like He's)"
        )
    if q == 0:
        notes.append("the variance of the activations vanishes")
    elif slope > 1 + 1e-9:
        notes.append(f"the variance q is not stable: a deviation grows by a factor {slope:.6g} per layer")
    elif abs(slope - 1) <= 1e-9:
        notes.append("any variance of the input is preserved: scale the input to q")
    return MeanField(
        sigma_w, sigma_b, q, sigma_w**2 * mu_1, slope, spread, isometry=least <= _FLAT, note="; ".join(notes)
    )
