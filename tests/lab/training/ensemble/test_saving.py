from types import SimpleNamespace

from orthosparse.lab.training.ensemble import saving


def test_a_checkpoint_that_takes_long_is_written_less_often(tmp_path, monkeypatch):
    clock, saved = SimpleNamespace(now=0.0), []

    def save(folder, steps, tree):
        saved.append(steps)
        clock.now += 3.0

    monkeypatch.setattr(saving, "monotonic", lambda: clock.now)
    monkeypatch.setattr(saving, "save", save)
    monkeypatch.setattr(saving, "take", lambda ensemble: {})
    ensemble = SimpleNamespace(step=1, epoch=0, steps_done=0, recipe=SimpleNamespace(epochs=9), feed=[None] * 1000)
    look = saving.Saving(tmp_path, {}, every=0, seconds=10.0)
    while clock.now < 400:
        clock.now += 1.0
        ensemble.steps_done += 1
        look(ensemble)
    # The first when it is 10 s old; then 50 times the 3 s that it took lie between two.
    assert saved == [10, 160, 310]
