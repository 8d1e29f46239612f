"""The laws of every kind, and the keys that must never change."""

import json
import pickle
from dataclasses import dataclass, fields
from typing import ClassVar

import pytest

from orthosparse.lab.experiments import KINDS, Experiment, experiment_of
from orthosparse.lab.experiments.conv_picture import ConvPicture
from orthosparse.lab.experiments.efficiency import Efficiency
from orthosparse.lab.experiments.expected_density import ExpectedDensity
from orthosparse.lab.experiments.init_runtime import InitRuntime
from orthosparse.lab.experiments.mask_picture import MaskPicture
from orthosparse.lab.experiments.parameter_count import ParameterCount
from orthosparse.lab.experiments.spectrum import Spectrum
from orthosparse.lab.experiments.training import Training

# Rows in the world are known by these: a key that changes loses them.
GOLDEN = {
    '{"data":"cifar10","density":0.1,"kind":"training","model":"resnet32"}': Training("resnet32", "cifar10", 0.1),
    '{"data":"cifar10","kind":"training","model":"vgg16c"}': Training("vgg16c", "cifar10", distribution="snip"),
    '{"activation":"tanh","data":"mnist","density":0.125,"distribution":"uniform","epochs":3,"kind":"training",'
    '"model":"mlp1000","options":{"compat":"paper-code","iterations":1000},"scheme":"ai"}': Training(
        "mlp1000",
        "mnist",
        0.125,
        "uniform",
        "ai",
        activation="tanh",
        options={"iterations": 1000, "compat": "paper-code"},
        epochs=3,
    ),
    '{"data":"imagenet","density":0.1,"exclude":["head","blocks.*.attn.*"],"kind":"training",'
    '"model":"deit3_small"}': Training("deit3_small", "imagenet", 0.1, exclude=("head", "blocks.*.attn.*")),
    '{"activation":"relu","density":1.0,"distribution":"erk","kind":"spectrum","scheme":"eoi"}': Spectrum(
        "relu", "erk", "eoi", 1
    ),
    '{"density":0.0625,"kind":"efficiency","method":"sao","size":64}': Efficiency("sao", 64, 0.0625, iterations=9),
    '{"density":0.0625,"iterations":1000,"kind":"efficiency","method":"ai","size":64}': Efficiency(
        "ai", 64, 0.0625, 1000
    ),
    '{"data":"cifar10","distribution":"erk","kind":"init_runtime","model":"resnet32","scheme":"ai"}': InitRuntime(
        "resnet32", "cifar10", "erk", "ai"
    ),
    '{"kind":"expected_density"}': ExpectedDensity(),
    '{"kind":"mask_picture","scheme":"eoi"}': MaskPicture("eoi"),
    '{"kind":"conv_picture"}': ConvPicture(),
    '{"data":"cifar10","density":0.125,"kind":"parameter_count","model":"cnn1000"}': ParameterCount(
        "cnn1000", "cifar10", 0.125
    ),
}


@pytest.mark.parametrize("key", GOLDEN)
def test_keys_stay_what_they_were(key):
    assert GOLDEN[key].key() == key


@pytest.mark.parametrize("key", GOLDEN)
def test_an_experiment_comes_back_from_its_key_and_from_a_pickle(key):
    for again in (experiment_of(key), pickle.loads(pickle.dumps(GOLDEN[key]))):  # noqa: S301 - our own
        assert (again, hash(again), again.key()) == (GOLDEN[key], hash(GOLDEN[key]), key)


@pytest.mark.parametrize("key", GOLDEN)
def test_an_experiment_is_described_in_plain_values_and_has_a_price_and_a_name(key):
    experiment = GOLDEN[key]
    described = experiment.described()
    assert described.keys() == experiment.names() >= {field.name for field in fields(experiment)}
    assert json.loads(json.dumps(described)) == described
    assert experiment.cost() > 0
    assert experiment.label().startswith(experiment.kind)


def test_the_table_knows_every_kind_by_its_name():
    assert all(KINDS[name].kind == name for name in KINDS)
    assert {type(experiment) for experiment in GOLDEN.values()} == set(KINDS.values())


def test_a_field_that_is_added_with_a_default_keeps_old_keys():
    @dataclass(frozen=True, eq=False)
    class Old(Experiment):
        kind: ClassVar[str] = "k"
        size: float = 2.0

    @dataclass(frozen=True, eq=False)
    class New(Old):
        more: str | None = None
        options: tuple[int, ...] = ()

    assert Old(3).key() == New(3.0).key() == '{"kind":"k","size":3.0}'
    assert New(3.0, options=(1,)).key() == '{"kind":"k","options":[1],"size":3.0}'


def test_a_whole_number_is_the_float_that_it_equals():
    assert Training("mlp", "mnist", lr=1) == Training("mlp", "mnist", lr=1.0)
    assert Training("mlp", "mnist", epochs=1).key() == '{"data":"mnist","epochs":1,"kind":"training","model":"mlp"}'


def test_what_is_not_read_is_no_part_of_the_key():
    dense = Training("mlp", "mnist", distribution="snip", scheme="base", options={"a": 1})
    assert dense == Training("mlp", "mnist")
    assert Training("mlp", "mnist", 0.5, scheme="base") != Training("mlp", "mnist", 0.5)


def test_values_that_are_not_numbers_make_no_key():
    with pytest.raises(ValueError):
        Training("mlp", "mnist", float("nan")).key()


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ('{"kind":"tarining"}', "kind: expected one of conv_picture"),
        ('{"size":1}', "kind: expected one of conv_picture"),
        ('{"kind":"mask_picture","scheme":"eoi","colour":"red"}', r"got \['colour'\]"),
    ],
)
def test_a_key_of_another_version_is_refused_with_what_is_known(key, message):
    with pytest.raises(ValueError, match=message):
        experiment_of(key)
