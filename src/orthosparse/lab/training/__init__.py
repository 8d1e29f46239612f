"""Training: the paper's recipes, one loop on one device or many, checkpoints, and result rows."""

from orthosparse.lab.training.assembly import Assembled, assemble
from orthosparse.lab.training.callbacks import Callback
from orthosparse.lab.training.config import DYNAMICS, TrainConfig, recipe_for
from orthosparse.lab.training.devices import launch
from orthosparse.lab.training.logs import LOGS
from orthosparse.lab.training.loop import fit
from orthosparse.lab.training.nonfinite import NonFiniteError
from orthosparse.lab.training.progress import Progress
from orthosparse.lab.training.recipe import RECIPES, Recipe, learning_rate
from orthosparse.lab.training.run import train
from orthosparse.lab.training.state import State

__all__ = [
    "DYNAMICS",
    "LOGS",
    "RECIPES",
    "Assembled",
    "Callback",
    "NonFiniteError",
    "Progress",
    "Recipe",
    "State",
    "TrainConfig",
    "assemble",
    "fit",
    "launch",
    "learning_rate",
    "recipe_for",
    "train",
]
