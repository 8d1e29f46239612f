"""Many networks of one shape trained at once: stacked weights, one step for all, each as it would train alone."""

from orthosparse.lab.training.ensemble.alike import shape_of, why_not
from orthosparse.lab.training.ensemble.chain import Chain
from orthosparse.lab.training.ensemble.making import ensemble_of
from orthosparse.lab.training.ensemble.run import train_many
from orthosparse.lab.training.ensemble.starts import start_of
from orthosparse.lab.training.ensemble.state import Ensemble
from orthosparse.lab.training.ensemble.step import Step
from orthosparse.lab.training.ensemble.ways import Ways

__all__ = [
    "Chain",
    "Ensemble",
    "Step",
    "Ways",
    "ensemble_of",
    "shape_of",
    "start_of",
    "train_many",
    "why_not",
]
