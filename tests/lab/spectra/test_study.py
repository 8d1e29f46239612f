import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from orthosparse.lab.data import load
from orthosparse.lab.models import build, dense_init
from orthosparse.lab.seeds import generators
from orthosparse.lab.spectra import Experiment, batch_of, experiments, measure, run

FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture(scope="module")
def mnist():
    return load("mnist", FIXTURES)


@pytest.fixture(scope="module")
def batch(mnist):
    return batch_of(mnist, 1)


def test_the_figure_has_all_activations_distributions_schemes_and_densities_but_no_synflow_under_tanh():
    found = experiments()
    assert len(found) == len({experiment.key for experiment in found}) == (4 * 4 + 2) * 3 * 12
    assert Counter(experiment.distribution for experiment in found)["synflow"] == 2 * 3 * 12
    assert {e.activation for e in found if e.distribution == "synflow"} == {"linear", "relu"}
    assert {experiment.ai_iterations for experiment in found if experiment.scheme == "ai"} == {1000}
    assert {experiment.density for experiment in found} == {0.03, 0.05, *(n / 10 for n in range(1, 11))}


def test_keys_are_what_they_were():
    """Rows of the past are found by them."""
    assert Experiment("linear", "erk", "eoi", 0.03).key == "linear-erk-eoi-0.03"
    assert Experiment("relu", "snip", "ai", 1.0, 1000).key == "relu-snip-ai-1-ai1000"
    assert Experiment("tanh", "grasp", "ai", 0.1, 100, "paper-code").key == "tanh-grasp-ai-0.1-ai100-paper-code"


@pytest.mark.parametrize("density", [0.03, 0.5, 1.0])
def test_a_linear_network_has_singular_values_of_1_at_every_density_under_eoi(batch, density):
    found = measure(Experiment("linear", "erk", "eoi", density), batch, 1)
    assert (found["min"], found["max"]) == pytest.approx((1, 1), abs=1e-5)
    assert found["got"] == round(density * 129_400)


def test_base_falls_with_the_density_and_ai_lies_between(batch):
    means = {
        scheme: [
            measure(Experiment("linear", "uniform", scheme, density, 100 if scheme == "ai" else 0), batch, 1)["mean"]
            for density in (0.05, 0.3, 1.0)
        ]
        for scheme in ("base", "ai")
    }
    assert means["base"] == sorted(means["base"])
    assert means["base"][0] < 1e-3
    assert means["base"][0] < means["ai"][0] < 1
    assert means["base"][2] == pytest.approx(1, abs=1e-5)


def test_at_density_1_base_has_the_spectrum_of_the_dense_network_by_torchs_own_jacobian(batch):
    draw = generators(1)
    model = build("mlp", classes=10, in_shape=(1, 28, 28), activation="relu", generator=draw.init)
    dense_init(model, "orthogonal", generator=draw.init)
    jacobians = torch.func.vmap(torch.func.jacrev(lambda x: model(x.unsqueeze(0))[0]))(batch[0]).detach()
    values = torch.linalg.svdvals(jacobians.flatten(2))
    found = measure(Experiment("relu", "erk", "base", 1.0), batch, 1)
    statistics = (values.mean(), values.max(), values.min(), values.std(correction=0))
    expected = [float(value) for value in statistics]
    assert [found[name] for name in ("mean", "max", "min", "std")] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("distribution", ["snip", "grasp", "synflow"])
def test_compat_reaches_the_scores(batch, distribution):
    ours = Experiment("relu", distribution, "base", 0.5)
    assert measure(ours, batch, 1)["mean"] != measure(replace(ours, compat="paper-code"), batch, 1)["mean"]


def test_a_run_goes_on_where_it_stopped_and_computes_nothing_twice(mnist, tmp_path):
    asked, path, told = experiments()[:6:3] + experiments()[2:3], tmp_path / "out" / "rows.jsonl", []
    first = run(asked[:2], mnist, path, announce=told.append)
    text = path.read_text()
    rows = run(asked, mnist, path, seeds=[1, 2], announce=told.append)
    assert path.read_text().startswith(text)
    assert rows[:2] == first
    assert len(rows) == 6
    assert told == [0, 1, 2, 3, 4, 5]
    assert [(row["key"], row["seed"]) for row in rows] == [(e.key, seed) for seed in (1, 2) for e in asked]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert sum("run" in line for line in lines) == 2
    assert "torch" in lines[0]["run"]["versions"]


def test_inputs_are_the_first_training_batch_of_the_seed(mnist):
    images, labels = batch_of(mnist, 1)
    assert images.shape == (128, 1, 28, 28)
    assert torch.equal(images, batch_of(mnist, 1)[0])
    assert not torch.equal(labels, batch_of(mnist, 2)[1])
