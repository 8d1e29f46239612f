import pytest

from orthosparse.lab.experiments.efficiency import Efficiency
from orthosparse.lab.experiments.expected_density import ExpectedDensity
from orthosparse.lab.experiments.selection import fields_of, selected
from orthosparse.lab.experiments.training import Training

SPARSE = [
    Training(model, "cifar10", 0.1, distribution, scheme, options={"iterations": 20} if scheme == "ai" else {})
    for model in ("resnet32", "vgg16c")
    for distribution in ("erk", "snip")
    for scheme in ("base", "ai", "eoi")
]
DENSE = Training("resnet32", "cifar10")
ALL = [*SPARSE, DENSE]


def test_fields_add_up_and_filters_of_one_field_are_alternatives():
    found = selected(ALL, ["model=resnet32", "scheme=eoi", "scheme=base", "distribution=erk"])
    assert [(each.model, each.distribution, each.scheme) for each in found] == [
        ("resnet32", "erk", "base"),
        ("resnet32", "erk", "eoi"),
    ]


def test_a_dense_network_has_no_distribution():
    assert DENSE not in selected(ALL, ["distribution=erk"])
    assert "distribution" not in fields_of(DENSE)
    assert selected(ALL, ["density=1"]) == selected(ALL, ["distribution=none"]) == [DENSE]


def test_a_number_may_be_written_in_any_way():
    assert selected(ALL, ["density=1.0"]) == selected(ALL, ["density=1e0"]) == [DENSE]
    assert selected(ALL, ["density=1.0", "density=.1"]) == ALL


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        (["model=res*"], 7),
        (["options.iterations=20"], 4),
        (["snip eoi"], 2),
        (["*vgg16c*erk*"], 3),
        (["*iterations=20*"], 4),
        (["snip eoi density=0.5", "ai iterations=20"], 4),
        (["epochs=200"], 13),
    ],
)
def test_globs_words_and_inner_fields(filters, count):
    assert len(selected(ALL, filters)) == count


@pytest.mark.parametrize(
    ("filters", "answer"),
    [
        (["model=resnet33"], "model is one of resnet32, vgg16c; got resnet33"),
        (["data=mnist"], "data is always cifar10; got mnist"),
        (["modle=resnet32"], "dense_init, density, distribution, "),
        (["modle=none"], "got 'modle'"),
        (["rigl"], "no label fits *rigl*; one is 'training resnet32"),
        (["model=vgg16c", "density=1"], "all of them together none"),
    ],
)
def test_what_fits_nothing_is_answered_with_what_there_is(filters, answer):
    with pytest.raises(ValueError, match="only: expected") as error:
        selected(ALL, filters)
    assert answer in str(error.value)


def test_many_values_are_cut_short():
    sizes = [ExpectedDensity(size) for size in range(10, 40)]
    with pytest.raises(ValueError, match="and 18 more; got 9"):
        selected([*sizes, Efficiency("eoi", 5, 0.5)][:-1], ["size=9"])
