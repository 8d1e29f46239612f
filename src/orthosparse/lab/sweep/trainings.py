"""Result lines of `orthosparse train`, as the rows that the same experiment has in a store."""

from typing import Any


def is_training(line: dict[str, Any]) -> bool:
    """Whether a line is what `orthosparse train` writes at the end of a run."""
    return {"config", "seed", "test_accuracy", "epochs"} <= line.keys()


def row_of(line: dict[str, Any]) -> dict[str, Any]:
    """Return the row: nothing is measured anew, and everything the line knows of its making stays.

    One of `orthosparse together` also says with how many it shared its time.

    Raises:
        ValueError: the run had settings that this version does not have, or the line lacks a part.
    """
    try:
        return _row_of(line)
    except (KeyError, AttributeError, IndexError) as error:
        raise ValueError(f"not a whole result of a training ({type(error).__name__}: {error})") from error


def _row_of(line: dict[str, Any]) -> dict[str, Any]:
    from orthosparse.lab.experiments.training import Training

    settings: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in line["config"].items()}
    model, recipe = settings["model"], settings.pop("recipe")
    settings.pop("eval_batch", None)  # it changed no result
    if unknown := sorted({*settings, *recipe} - Training.names()):
        raise ValueError(f"a training of {model} with settings that no experiment has: {unknown}")
    experiment = Training(**settings, **recipe)
    history = line["epochs"]
    tested = {name: line[name] for name in ("test_accuracy", "test_loss", "density", "parameters")}
    times = {"epochs": len(history), "train_seconds": line["seconds"], "resumed_seconds": 0.0}
    shared = {name: line[name] for name in ("together",) if name in line}
    return {
        "key": experiment.key(),
        "seed": line["seed"],
        "kind": experiment.kind,
        "fields": experiment.described(),
        "metrics": {"diverged": False, **tested, **times, **shared},
        "curves": {name: [epoch[name] for epoch in history] for name in history[0] if name != "epoch"},
        **{name: line[name] for name in ("commit", "versions", "device")},
        "wall_s": line["seconds"],
        "time": line["date"],
    }
