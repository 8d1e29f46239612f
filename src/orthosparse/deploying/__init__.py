"""The fastest form of a trained sparse network for inference, measured: dead units removed, each layer in its form."""

from orthosparse.deploying.deployed import deploy
from orthosparse.deploying.table import DeployedLayer, DeployTable

__all__ = ["DeployTable", "DeployedLayer", "deploy"]
