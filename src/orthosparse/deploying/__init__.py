"""Make a trained sparse network fast for inference: remove dead units, and measure the fastest form of each layer."""

from orthosparse.deploying.deployed import deploy
from orthosparse.deploying.table import DeployedLayer, DeployTable

__all__ = ["DeployTable", "DeployedLayer", "deploy"]
