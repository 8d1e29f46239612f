"""The handwritten digits, scaled to the variance that the network's layers keep."""

import math
from dataclasses import replace

from orthosparse import isometry
from orthosparse.lab.data import Dataset, Split, load


def scaled_digits() -> Dataset:
    """Return the digits, all 1437 training samples, times sqrt(q) / sigma_w of tanh's critical point.

    Orthogonal weights times sigma_w then give the first layer pre-activations of variance q, which every layer keeps:
    the singular values of a dense orthogonal start are near 1.
    """
    point = isometry.critical_point("tanh")
    data, factor = load("digits", validation=False), math.sqrt(point.q) / point.sigma_w
    return replace(data, train=_scaled(data.train, factor), test=_scaled(data.test, factor))


def _scaled(split: Split, factor: float) -> Split:
    wide = tuple(std / factor for std in split.normalisation.std)
    return replace(split, normalisation=replace(split.normalisation, std=wide))
