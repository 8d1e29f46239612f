"""Isometry: measure what orthogonal weights promise, on any model, and say where it cannot be had.

`singular_values` of the input-output Jacobian, `orthogonality_score` and `layer_singular_values` of every layer, the
`critical_point` of an activation (or the `mean_field` of any point), the `effective_density` that live paths leave, and
the `gradient_flow`. None of them changes the model, its modes, buffers and gradients, or a global random state.
"""

from orthosparse.isometry._spectrum import Spectrum
from orthosparse.isometry.criticality import MeanField, critical_point, mean_field
from orthosparse.isometry.density import EffectiveDensity, LayerPaths, effective_density
from orthosparse.isometry.flow import GradientFlow, gradient_flow
from orthosparse.isometry.jacobian import singular_values
from orthosparse.isometry.layers import LayerScore, layer_singular_values, orthogonality_score

__all__ = [
    "EffectiveDensity",
    "GradientFlow",
    "LayerPaths",
    "LayerScore",
    "MeanField",
    "Spectrum",
    "critical_point",
    "effective_density",
    "gradient_flow",
    "layer_singular_values",
    "mean_field",
    "orthogonality_score",
    "singular_values",
]
