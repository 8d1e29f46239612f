"""The paper's study of singular values (section 5.1): its points here, the figure of their rows in `figure`."""

from orthosparse.lab.spectra.study import ACTIVATIONS, DENSITIES, DISTRIBUTIONS, SCHEMES, experiments

__all__ = ["ACTIVATIONS", "DENSITIES", "DISTRIBUTIONS", "SCHEMES", "experiments"]
