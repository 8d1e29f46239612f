"""Inspection: what a scheme and a distribution would make of a model, measured before anything is trained."""

from orthosparse.lab.inspection.activations import Advice, advise
from orthosparse.lab.inspection.inputs import Inputs, from_data, gaussian
from orthosparse.lab.inspection.measures import Effort, Measured, measure, plain
from orthosparse.lab.inspection.page import page_of
from orthosparse.lab.inspection.run import inspect_model, picker
from orthosparse.lab.inspection.starts import MODES, Plan, Start, prepared, starts
from orthosparse.lab.inspection.tables import by_layer, remarks, summary
from orthosparse.lab.inspection.targets import Target, outputs_of, parse_shape, resolve

__all__ = [
    "MODES",
    "Advice",
    "Effort",
    "Inputs",
    "Measured",
    "Plan",
    "Start",
    "Target",
    "advise",
    "by_layer",
    "from_data",
    "gaussian",
    "inspect_model",
    "measure",
    "outputs_of",
    "page_of",
    "parse_shape",
    "picker",
    "plain",
    "prepared",
    "remarks",
    "resolve",
    "starts",
    "summary",
]
