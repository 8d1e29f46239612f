"""Isometry: measure how well any model preserves signals, and see where it cannot.

- `singular_values` returns those of the input-output Jacobian.
- `orthogonality_score` and `layer_singular_values` measure each layer.
- `critical_point` finds the gain and bias that suit an activation, and `mean_field` describes any other choice.
- `effective_density` counts the weights on a path from input to output.
- `gradient_flow` returns the norms of the gradients.

None of them changes the model, its modes, buffers or gradients, or a global random state.
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
