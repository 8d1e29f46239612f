"""The paper's study of singular values (section 5.1): its points, and the figure of their rows."""

from orthosparse.lab.spectra.figure import render
from orthosparse.lab.spectra.study import ACTIVATIONS, DENSITIES, DISTRIBUTIONS, SCHEMES, experiments

__all__ = ["ACTIVATIONS", "DENSITIES", "DISTRIBUTIONS", "SCHEMES", "experiments", "render"]
