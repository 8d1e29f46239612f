"""The paper's study of singular values (section 5.1): experiments, rows, figure."""

from orthosparse.lab.spectra.study import Experiment, batch_of, experiments, measure, render, run

__all__ = ["Experiment", "batch_of", "experiments", "measure", "render", "run"]
