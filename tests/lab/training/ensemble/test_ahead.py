from dataclasses import replace

import torch

from orthosparse.lab.data import load
from orthosparse.lab.training.ensemble import ahead
from orthosparse.lab.training.ensemble.starts import start_of

CPU = torch.device("cpu")


def test_starts_made_ahead_are_those_made_in_their_turn(deep, four, tmp_path):
    data = load("digits")
    members = [*four(), (deep(density=0.0001), 1), (deep(density=0.3, scheme="ai", options={"iterations": 9}), 1)]
    folders = [tmp_path / str(place) for place in range(len(members))]
    ahead.make_ahead(members, folders, None, CPU, 2)
    assert all(folder.exists() for folder in folders)
    for (config, seed), folder in zip(members, folders, strict=True):
        kept = start_of(config, seed, data, CPU, folder)
        made = start_of(config, seed, data, CPU, None)
        assert (kept.problem, kept.warnings, kept.density) == (made.problem, made.warnings, made.density)
        assert kept.state.keys() == made.state.keys()
        assert all(torch.equal(kept.state[name], value) for name, value in made.state.items())


def test_only_descents_and_scores_of_many_batches_are_slow(deep):
    quick = [deep(), deep(density=0.3), deep(density=0.3, distribution="snip")]
    assert not any(ahead.is_slow(config) for config in quick)
    many = replace(deep(density=0.3, distribution="grasp"), score_batches=3)
    assert all(ahead.is_slow(config) for config in (deep(density=0.3, scheme="ai"), many))


def test_processes_that_die_leave_the_starts_to_the_run(deep, tmp_path, caplog, monkeypatch):
    class Dying(ahead.ProcessPoolExecutor):
        def submit(self, *task):
            raise ahead.BrokenProcessPool("a process died")

    monkeypatch.setattr(ahead, "ProcessPoolExecutor", Dying)
    folders = [tmp_path / str(seed) for seed in range(2)]
    ahead.make_ahead([(deep(), seed) for seed in range(2)], folders, None, CPU, 2)
    assert "starts are made one after the other: a process died" in caplog.text
    assert not any(folder.exists() for folder in folders)
