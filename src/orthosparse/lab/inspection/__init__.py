"""Inspection: what a scheme and a distribution would make of a model, measured before anything is trained."""

from orthosparse.lab.inspection.activations import Advice, advise
from orthosparse.lab.inspection.head import Head, picker
from orthosparse.lab.inspection.inputs import Inputs, from_data, gaussian, random_tokens
from orthosparse.lab.inspection.measures import Effort, Measured, measure, plain
from orthosparse.lab.inspection.page import page_of
from orthosparse.lab.inspection.run import inspect_model
from orthosparse.lab.inspection.starts import MODES, Plan, Start, prepared, starts
from orthosparse.lab.inspection.tables import by_layer, remarks, summary
from orthosparse.lab.inspection.targets import Target, head_of, parse_input, resolve, shape_text

__all__ = [
    "MODES",
    "Advice",
    "Effort",
    "Head",
    "Inputs",
    "Measured",
    "Plan",
    "Start",
    "Target",
    "advise",
    "by_layer",
    "from_data",
    "gaussian",
    "head_of",
    "inspect_model",
    "measure",
    "page_of",
    "parse_input",
    "picker",
    "plain",
    "prepared",
    "random_tokens",
    "remarks",
    "resolve",
    "shape_text",
    "starts",
    "summary",
]
