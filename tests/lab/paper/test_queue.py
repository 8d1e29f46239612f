"""What is to be measured next."""

import json
from pathlib import Path

import pytest

from orthosparse.lab.commands._sweep import only_those, pairs_of
from orthosparse.lab.paper import ITEMS
from orthosparse.lab.paper.queue import QUEUE

ROOT = Path(__file__).parents[3]
FOUND = {
    entry.title: only_those(
        pairs_of(ITEMS[entry.item], list(entry.seeds), smoke=False, precision=entry.precision),
        list(entry.only) or ["*"],
    )
    for entry in QUEUE
}


def test_every_entry_has_a_title_of_its_own_and_pairs():
    assert len(FOUND) == len(QUEUE)
    assert all(FOUND.values())


@pytest.mark.parametrize(
    ("title", "count"),
    [
        ("ResNet32, density 5 %", 17),
        ("1000-layer CNN, 100 epochs", 3),
        ("ResNet56, density 10 %", 17),
        ("ResNet56, density 5 %", 18),
        ("ResNet32 by activation", 57),
        ("ResNet32, density 10 %, two more seeds", 34),
        ("ERK EOI in TF32, a check of bf16", 4),
        ("1000-layer CNN, uniform and SAO's densities", 5),
    ],
)
def test_entries_are_as_large_as_their_part_of_the_paper(title, count):
    assert len(FOUND[title]) == count


def test_the_deep_network_trains_at_full_length_from_eoi_ai_and_dense():
    found = {(each.experiment.density, each.experiment.scheme) for each in FOUND["1000-layer CNN, 100 epochs"]}
    assert found == {(1.0, "eoi"), (0.125, "ai"), (0.125, "eoi")}
    assert {each.experiment.recipe.epochs for each in FOUND["1000-layer CNN, 100 epochs"]} == {100}


def test_the_check_of_bf16_is_in_tf32():
    assert {each.experiment.recipe.precision for each in FOUND["ERK EOI in TF32, a check of bf16"]} == {"tf32"}
    assert {each.experiment.recipe.precision for each in FOUND["VGG-16, density 10 %"]} == {"bf16"}


def test_vgg_trains_alone_as_its_steps_in_a_stack_take_longer():
    assert {entry.together for entry in QUEUE if "vgg16c" in str(entry.only)} == {None}
    rows = [
        json.loads(line) for line in (ROOT / "results" / "benchmarks" / "stack_speed.jsonl").read_text().splitlines()
    ]
    steps = {row["what"]: row["ms"] for row in rows if row["what"].startswith("vgg16c")}
    assert steps["vgg16c bf16 alone, graph"] < steps["vgg16c bf16 x 5"] / 5
