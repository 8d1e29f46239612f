"""The settings of a sparse start, shared by the kinds that build a network."""

from typing import Any


def train_config(experiment: Any, **changes: Any) -> Any:
    """Return the TrainConfig of an experiment's fields: those it lacks keep their defaults, None takes the recipe's.

    Args:
        changes: fields of the recipe or of the configuration, given by the kind itself.
    """
    from dataclasses import fields, replace

    from orthosparse.lab.training import Recipe, TrainConfig, recipe_for

    own = {**vars(experiment), **changes}
    base = recipe_for(own.pop("recipe", None) or own["model"])
    names = {field.name for field in fields(Recipe)}
    recipe = replace(base, **{name: own[name] for name in names & own.keys() if own[name] is not None})
    known = {field.name for field in fields(TrainConfig)} - {"recipe"}
    return TrainConfig(recipe=recipe, **{name: own[name] for name in known & own.keys()})
