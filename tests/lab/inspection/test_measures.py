import json

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import orthosparse
from orthosparse.lab.inspection.head import Head
from orthosparse.lab.inspection.inputs import Inputs
from orthosparse.lab.inspection.measures import Effort, inspect_model, measure, plain
from orthosparse.lab.inspection.starts import Plan, Start, starts


def test_the_asked_scheme_is_orthogonal_and_base_is_not(found):
    dense, base, eoi = found
    assert max(score.score for score in dense.orthogonality.values()) < 1e-5
    assert max(score.score for score in eoi.orthogonality.values()) < 1e-5
    assert max(score.score for score in base.orthogonality.values()) > 1
    assert base.spectrum.mean < 1e-3 < eoi.spectrum.mean


def test_singular_values_are_those_of_torchs_own_jacobian(network):
    target, inputs = network
    start = Start("dense", target.model.eval(), None)
    spectrum = measure(start, inputs, gain=1.0, head=Head(), effort=Effort(samples=2), seed=0).spectrum
    for image, values in zip(inputs.x, spectrum.values, strict=False):
        jacobian = torch.func.jacrev(lambda x: target.model(x.unsqueeze(0))[0])(image)
        torch.testing.assert_close(values, torch.linalg.svdvals(jacobian.flatten(1).detach()), atol=1e-5, rtol=1e-4)
    assert spectrum.shape == (2, 5)


def test_gradients_are_those_of_the_loss(network):
    target, inputs = network
    model = nn.Sequential(target.model).eval()
    (*_, start) = starts(model, Plan(kind="default"), (inputs.x, inputs.labels), loss=Head().loss, seed=0)
    measured = measure(start, inputs, gain=1.0, head=Head(), effort=Effort(samples=1), seed=0)
    loss = cross_entropy(start.model(inputs.x), inputs.labels)
    (gradient,) = torch.autograd.grad(loss, start.model[0].fc3.weight)
    assert measured.flow.norms["0.fc3"] == pytest.approx(float(gradient.norm()), rel=1e-4)
    assert measured.flow.loss == pytest.approx(float(loss.detach()), rel=1e-5)


def test_a_large_jacobian_is_measured_without_having_it_whole(generator):
    model = nn.Sequential(nn.Flatten(), nn.Linear(600, 600, bias=False)).eval()
    orthosparse.init.orthogonal_(model[1].weight, gain=2.0, generator=generator)
    inputs = Inputs(torch.randn(2, 600, generator=generator), torch.zeros(2, dtype=torch.long), "noise")
    measured = measure(Start("dense", model, None), inputs, gain=2.0, head=Head(), effort=Effort(samples=1), seed=0)
    assert not measured.spectrum.exact
    assert measured.spectrum.max == pytest.approx(2, rel=1e-3)
    assert measured.spectrum.mean == pytest.approx(2, rel=1e-2)
    assert measured.orthogonality["1"].score < 1e-4


def test_all_findings_are_plain_values(found):
    facts = json.loads(json.dumps({each.name: plain(each) for each in found}))
    assert facts["eoi"]["density"] == pytest.approx(0.05, abs=1e-3)
    assert facts["eoi"]["report"]["scheme"] == "eoi"
    assert facts["dense"]["report"] is None
    assert set(facts["base"]["layers"]) == {f"fc{index}" for index in range(1, 8)}
    assert len(facts["base"]["singular_values"]["values"]) == 4


def test_the_effective_density_counts_the_layers_that_the_density_counts(network):
    target, inputs = network
    dense, base, asked = inspect_model(target.model, Plan(density=0.05, exclude=("fc1", "fc7")), inputs)
    assert dense.effective_density == 1
    for each in (base, asked):
        live = sum(int(each.effective.layers[f"fc{number}"].live.sum()) for number in range(2, 7))
        assert each.effective_density == live / each.report.numel <= each.density < each.effective.total


def test_a_seed_decides_what_is_found_and_every_part_is_counted(network, found):
    target, inputs = network
    reported = []
    tell = lambda *progress: reported.append(progress)  # noqa: E731
    same = inspect_model(target.model, Plan(density=0.05, gain=1.02), inputs, seed=1, progress=tell)
    assert [(done, total) for _, done, total in reported] == [(done, 15) for done in range(16)]
    assert [what for what, _, _ in reported[::5]] == ["eoi: start", "base: start", "dense: start", "done"]
    assert [plain(each) for each in same] == [plain(each) for each in found]
    other = inspect_model(target.model, Plan(density=0.05), inputs, seed=2, effort=Effort(samples=1))
    assert plain(other[-1])["layers"] != plain(found[-1])["layers"]


def test_a_start_that_cannot_be_made_is_refused_before_anything_is_measured(network):
    target, inputs = network
    reported = []
    with pytest.raises(ValueError, match="density: expected at least"):
        inspect_model(target.model, Plan(density=0.0), inputs, progress=lambda *progress: reported.append(progress))
    assert [what for what, _, _ in reported] == ["eoi: start"]


def test_data_driven_distributions_see_the_inputs(network):
    target, inputs = network
    reports = [
        inspect_model(target.model, Plan(density=0.3, distribution=name), inputs, effort=Effort(samples=1))[-1].report
        for name in ("snip", "uniform")
    ]
    counts = [[row.got for row in report.rows] for report in reports]
    assert counts[0] != counts[1]
    assert sum(counts[0]) == sum(counts[1])
