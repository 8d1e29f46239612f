import inspect
from dataclasses import fields
from typing import Any

from orthosparse.lab.commands._fields import given_of, with_fields
from orthosparse.lab.training import Recipe, Run


def _options(**how):
    @with_fields(**how)
    def command(density: float = 0.5, seed: int = 1, **given: Any) -> None:
        """Do nothing."""

    return inspect.signature(command).parameters


def test_every_field_is_an_option_with_the_fields_own_help_and_default():
    options = _options()
    assert options.keys() == {field.name for part in (Run, Recipe) for field in fields(part)} | {"seed"}
    for field in fields(Run):
        if field.name not in ("recipe", "density"):
            assert options[field.name].annotation.__metadata__[0].help.startswith(field.metadata["help"])
    assert options["distribution"].default == "erk"
    assert options["model"].default is inspect.Parameter.empty
    assert all(options[field.name].default is None for field in fields(Recipe))


def test_a_command_may_say_a_field_otherwise_or_leave_it_out():
    assert _options()["density"].default == 0.5
    assert "scheme" not in _options(without={"scheme"})


def test_lists_become_what_a_training_takes():
    given = {"options": ["tap=random", "iterations=3"], "exclude": ["fc*"], "model_options": None, "epochs": None}
    assert given_of(given) == {
        "options": {"tap": "random", "iterations": 3},
        "exclude": ("fc*",),
        "model_options": {},
        "epochs": None,
    }
