import pytest

from orthosparse.lab.inspection import Effort, Plan, inspect_model, plain


def test_a_seed_decides_what_is_found_and_every_part_is_counted(network, found):
    target, inputs = network
    told = []
    tell = lambda *progress: told.append(progress)  # noqa: E731
    same = inspect_model(target.model, Plan(density=0.05, gain=1.02), inputs, seed=1, progress=tell)
    assert [(done, total) for _, done, total in told] == [(done, 15) for done in range(16)]
    assert [what for what, _, _ in told[::5]] == ["eoi: start", "base: start", "dense: start", "done"]
    assert [plain(each) for each in same] == [plain(each) for each in found]
    other = inspect_model(target.model, Plan(density=0.05), inputs, seed=2, effort=Effort(samples=1))
    assert plain(other[-1])["layers"] != plain(found[-1])["layers"]


def test_a_start_that_cannot_be_made_is_refused_before_anything_is_measured(network):
    target, inputs = network
    told = []
    with pytest.raises(ValueError, match="density: expected at least"):
        inspect_model(target.model, Plan(density=0.0), inputs, progress=lambda *progress: told.append(progress))
    assert [what for what, _, _ in told] == ["eoi: start"]


def test_data_driven_distributions_see_the_inputs(network):
    target, inputs = network
    reports = [
        inspect_model(target.model, Plan(density=0.3, distribution=name), inputs, effort=Effort(samples=1))[-1].report
        for name in ("snip", "uniform")
    ]
    counts = [[row.got for row in report.rows] for report in reports]
    assert counts[0] != counts[1]
    assert sum(counts[0]) == sum(counts[1])
