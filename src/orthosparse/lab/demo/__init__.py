"""The demo: the sampler at work, then one deep network trained from four starts, in about a minute on a laptop."""

from orthosparse.lab.demo.charts import mask_and_spectra
from orthosparse.lab.demo.digits import scaled_digits
from orthosparse.lab.demo.isometries import Isometry, measure
from orthosparse.lab.demo.networks import STARTS, Shape, build_starts, density_of
from orthosparse.lab.demo.page import Demo, page_of
from orthosparse.lab.demo.sampler import Sample, compare
from orthosparse.lab.demo.stack import Stack
from orthosparse.lab.demo.tables import network_table, sampler_table
from orthosparse.lab.demo.training import Course, History, train

__all__ = [
    "STARTS",
    "Course",
    "Demo",
    "History",
    "Isometry",
    "Sample",
    "Shape",
    "Stack",
    "build_starts",
    "compare",
    "density_of",
    "mask_and_spectra",
    "measure",
    "network_table",
    "page_of",
    "sampler_table",
    "scaled_digits",
    "train",
]
