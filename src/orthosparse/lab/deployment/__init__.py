"""A trained network made ready for use: its weights read, its fastest form found, and both written to a folder."""

from orthosparse.lab.deployment.checkpoints import load_weights, run_in
from orthosparse.lab.deployment.page import page_of, tables_of
from orthosparse.lab.deployment.shipping import Shipment, ship, write

__all__ = ["Shipment", "load_weights", "page_of", "run_in", "ship", "tables_of", "write"]
