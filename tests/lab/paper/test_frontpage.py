"""The pages from committed rows: an entry for whatever has rows, each with a command that makes those rows."""

import re
from pathlib import Path

import pytest

from lab.paper.rows import chosen, deep_starts, row_of, rows_for
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.paper import ITEMS, frontpage, singular_values
from orthosparse.lab.paper._chapters import chapters_of
from orthosparse.lab.sweep.rows import export
from orthosparse.lab.sweep.store import Store

ROOT = Path(__file__).parents[3]
BASE = Training("resnet32", "cifar10", 0.1, "erk", "base")
EOI = Training("resnet32", "cifar10", 0.1, "erk", "eoi")


def lines_of(rows):
    return [
        [f"{each.title}. {each.label}", each.command, each.machines, each.paper, each.ours]
        for each in frontpage.entries(chapters_of(ITEMS, rows))
    ]


@pytest.mark.parametrize("name", ITEMS)
def test_every_item_that_has_rows_has_a_line_and_its_command_makes_them(name):
    experiments = ITEMS[name].experiments()
    lines = lines_of(rows_for(experiments))
    own = [line for line in lines if f" {name}" in line[1]]
    assert own
    for item, command, machine, paper, ours in own:
        assert item
        assert paper
        assert "toy machine: " in machine
        assert ours
        assert "None" not in paper + ours
        assert {each.key() for each in chosen(command)} <= {each.key() for each in experiments}


def test_no_rows_no_lines():
    assert lines_of([]) == []


def test_accuracies_are_means_with_their_seeds_beside_the_papers():
    rows = [row_of(BASE, seed, test_accuracy=accuracy) for seed, accuracy in ((1, 0.88), (2, 0.9))]
    rows.append(row_of(EOI, 1, test_accuracy=0.895))
    ((item, command, machine, paper, ours),) = lines_of(rows)
    assert item == "Test accuracy of contemporary networks, density 10 %. ResNet32 (CIFAR-10)"
    assert paper == "ERK: Base 89.49, EOI 89.79"
    assert ours == "ERK: Base 89.00, EOI 89.50 (1 to 2 seeds)"
    assert machine == "toy machine: 3 runs of 2.0 s"
    assert "--seeds 1,2" in command
    assert {each.key() for each in chosen(command)} == {BASE.key(), EOI.key()}


def test_runs_that_all_diverged_stand_beside_those_that_did_not():
    rows = [row_of(BASE, diverged=True), row_of(EOI, test_accuracy=0.895)]
    ((*_, ours),) = lines_of(rows)
    assert ours == "ERK: Base diverged, EOI 89.50 (1 seed)"


def test_a_name_that_stands_twice_in_a_line_of_the_paper_stays():
    rows = rows_for([each for each in ITEMS["deep_networks"].experiments() if each.distribution == "dense_ends"])
    ((_, _, _, paper, ours), _) = lines_of(rows)
    assert (paper, ours) == ("SAO: SAO 96.74, EOI 97.43", "SAO: SAO 50.00, EOI 50.00 (1 seed)")


def test_names_that_end_in_a_number_are_set_off_and_short_times_are_not_none():
    rows = rows_for(ITEMS["expected_density"].experiments(), wall_s=0.01)
    ((_, _, machine, _, ours),) = lines_of(rows)
    assert ours == "n = 32: 0.2500, n = 100: 0.2500, n = 256: 0.2500 (1 seed)"
    assert machine == "toy machine: 3 runs of less than 0.1 s"


def test_names_with_commas_are_separated_by_semicolons():
    ((*_, ours), _) = lines_of(rows_for(ITEMS["strides"].experiments()))
    assert ours == "ERK: Base 50.00; EOI, one tap 50.00; EOI, tiles 50.00 (1 seed)"


def test_a_part_that_stands_for_its_item_is_named_with_all_runs():
    ((item, command, machine, _, _),) = lines_of(rows_for(ITEMS["singular_values"].experiments()))
    assert item.startswith("Singular values of the input-output Jacobian. Mean singular value at density 0.05: ")
    assert "--only" not in command
    assert machine == "toy machine: 648 runs of 2.0 s"


def test_rows_that_an_earlier_item_showed_do_not_make_a_line_again():
    rows = rows_for([BASE, EOI])
    assert [line[1].split()[3] for line in lines_of(rows)] == ["contemporary"]
    moving = Training("resnet32", "cifar10", 0.1, "erk", "base", dynamic="rigl")
    lines = lines_of([*rows, *rows_for([moving])])
    assert [line[1].split()[3] for line in lines] == ["contemporary", "dynamic"]
    assert "RigL" in lines[1][4]


def test_shorter_trainings_say_so_and_so_does_their_command():
    short = Training("resnet32", "cifar10", 0.1, "erk", "eoi", epochs=20)
    ((item, command, _, paper, ours),) = lines_of(rows_for([short]))
    assert item.endswith("ResNet32 (CIFAR-10), 20 of 200 epochs")
    assert paper == "at full length:<br>ERK EOI 89.79"
    assert ours == "ERK EOI 50.00 (1 seed; 20 of 200 epochs)"
    assert command.endswith("--epochs 20")


def test_distributions_with_shorter_trainings_alone_have_a_line_of_their_own():
    short = Training("resnet32", "cifar10", 0.1, "uniform", "eoi", epochs=20)
    beside = Training("resnet32", "cifar10", 0.1, "erk", "base", epochs=20)
    whole, shorter = lines_of(rows_for([short, beside, EOI]))
    assert whole[0].endswith("ResNet32 (CIFAR-10)")
    assert whole[4] == "ERK: Base 50.00 (20 of 200 epochs), EOI 50.00 (1 seed)"
    assert "--epochs" not in whole[1]
    assert shorter[0].endswith("ResNet32 (CIFAR-10), 20 of 200 epochs")
    assert shorter[4] == "Uniform EOI 50.00 (1 seed; 20 of 200 epochs)"
    assert shorter[1].endswith("--epochs 20")


def test_another_precision_says_so_and_so_does_its_command():
    low = Training("resnet32", "cifar10", 0.1, "erk", "eoi", precision="bf16")
    ((_, command, _, _, ours),) = lines_of(rows_for([low]))
    assert ours == "ERK EOI 50.00 (1 seed; 200 epochs in bf16 instead of tf32)"
    assert command.endswith("--seeds 1 --precision bf16")
    both = Training("resnet32", "cifar10", 0.1, "erk", "eoi", precision="bf16", epochs=20)
    ((_, command, _, _, ours),) = lines_of(rows_for([both]))
    assert ours == "ERK EOI 50.00 (1 seed; 20 of 200 epochs in bf16 instead of tf32)"
    assert command.endswith("--seeds 1 --epochs 20 --precision bf16")


def test_what_holds_for_some_numbers_alone_stands_beside_them_and_no_option_is_made_of_it():
    low = Training("resnet32", "cifar10", 0.1, "erk", "ai", precision="bf16")
    ((_, command, _, _, ours),) = lines_of(rows_for([BASE, low, EOI]))
    assert ours == "ERK: Base 50.00, AI 50.00 (200 epochs in bf16 instead of tf32), EOI 50.00 (1 seed)"
    assert "--precision" not in command


def test_what_holds_for_all_numbers_is_said_once():
    low = [Training("resnet32", "cifar10", 0.1, "erk", scheme, precision="bf16") for scheme in ("base", "ai", "eoi")]
    lines = lines_of(rows_for(low))
    (ours,) = (ours for _, command, _, _, ours in lines if "paper run ranks" in command)
    assert ours.count("1 of 5 distributions, 1 seed; 200 epochs in bf16 instead of tf32") == 1
    assert ours.endswith("EOI 2.00 (1 of 5 distributions, 1 seed; 200 epochs in bf16 instead of tf32)")


def test_the_largest_matrix_stands_for_the_efficiency():
    ((item, _, _, paper, ours),) = lines_of(rows_for(ITEMS["efficiency"].experiments()))
    assert item.endswith("Milliseconds at density 0.0625: n = 2048")
    assert paper == "a figure"
    assert ours.startswith("EOI 2.000; SAO 2.000; AI, ours 2.000 (200 iterations instead of 10,000); ")


def test_runs_that_trained_together_share_their_time():
    alone = rows_for([Training("resnet32", "cifar10", 0.1, "erk", scheme) for scheme in ("base", "eoi")])
    ((_, _, before, *_),) = lines_of(alone)
    for row in alone:
        row["metrics"]["together"], row["wall_s"] = 12, 12 * row["wall_s"]
    ((_, command, time, *_),) = lines_of(alone)
    assert time == f"{before}, 12 at once"
    assert command.endswith("--seeds 1 --together 12")


def test_runs_alone_and_runs_together_are_not_averaged():
    rows = rows_for([Training("resnet32", "cifar10", 0.1, "erk", scheme) for scheme in ("base", "ai", "eoi")])
    rows[0]["metrics"]["together"], rows[0]["wall_s"] = 12, 6 * rows[0]["wall_s"]
    (_, _, time, *_), *_ = lines_of(rows)
    (many, alone), (one, shared) = (part.split(" of ", 1) for part in time.split("<br>"))
    assert many.endswith(": 2 runs")
    assert one.endswith(": 1 run")
    assert shared.endswith(", 12 at once")
    assert "at once" not in alone


def test_counts_of_parameters_are_those_of_the_kept_weights():
    rows = [row_of(each, 1, kept=50_000, parameters=1, prunable=1) for each in ITEMS["parameter_counts"].experiments()]
    ((_, _, _, paper, ours),) = lines_of(rows)
    assert paper.startswith("ResNet32 (CIFAR-10) 10.0%: 45,000, ResNet56")
    assert ours.startswith("ResNet32 (CIFAR-10) 10.0%: 50,000, ResNet56")


def test_each_item_is_a_section_with_the_command_and_the_numbers_of_every_part():
    chapters = chapters_of(ITEMS, rows_for([BASE, EOI, *ITEMS["expected_density"].experiments()]))
    text, entries = frontpage.sections(chapters), [*frontpage.entries(chapters)]
    assert re.findall("^## (.*)", text, re.MULTILINE) == list(dict.fromkeys(entry.title for entry in entries))
    assert re.findall("```console\n(.*)\n```", text) == [entry.command for entry in entries]
    assert all(f"| {entry.paper} | {entry.ours} |" in text for entry in entries)


def test_the_readme_has_the_first_entries_of_its_items_alone():
    names = ("expected_density", "contemporary", "deep_networks")
    experiments = [each for name in names for each in ITEMS[name].experiments()]
    lines = frontpage.table(chapters_of(ITEMS, rows_for(experiments))).splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines] == [
        "| Test accuracy of 1000-layer networks, density 12.5 %. 1000-layer MLP (MNIST)",
        "| Test accuracy of 1000-layer networks, density 12.5 %. 1000-layer CNN (CIFAR-10)",
        "| Test accuracy of contemporary networks, density 10 %. ResNet32 (CIFAR-10)",
    ]


def test_the_text_goes_between_the_marks_and_nothing_else_changes():
    page = f"a\n{frontpage.BEGIN}\nold\n{frontpage.END}\nb\n"
    new = frontpage.inserted(page, "new\n")
    assert new == page.replace("old", "new")
    assert frontpage.inserted(new, "new\n") == new


@pytest.mark.parametrize("page", ["", frontpage.BEGIN, f"{frontpage.END} {frontpage.BEGIN}"])
def test_a_page_without_its_marks_is_refused(page):
    with pytest.raises(ValueError, match="page: expected"):
        frontpage.inserted(page, "")


def test_the_program_rewrites_the_pages_and_names_what_it_cannot_read(tmp_path, capsys):
    deep = [*deep_starts("mlp1000").values(), *deep_starts("cnn1000").values()]
    rows = rows_for([BASE, *singular_values.points()[:3]])
    curves = {"validation_accuracy": [0.1, 0.5]}
    rows += [row_of(each, curves=curves, test_accuracy=0.5) for each in deep]
    store = Store(tmp_path / "results.sqlite")
    assert all(store.append(row) for row in rows)
    export(store.rows(), tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_text("nonsense\n")
    (tmp_path / "docs" / "evidence").mkdir(parents=True)
    page, everything = tmp_path / "README.md", tmp_path / "docs" / "items.md"
    page.write_text(f"{frontpage.BEGIN}\n{frontpage.END}\n")
    everything.write_text(page.read_text())
    assert frontpage.main([str(tmp_path), str(tmp_path / "a.jsonl")]) == 0
    assert "ERK Base 50.00 (1 seed)" in everything.read_text()
    assert 0 < page.read_text().count("\n") < everything.read_text().count("\n")
    assert "| 1000 layers train | **" in (tmp_path / "docs" / "evidence" / "claims.md").read_text()
    assert all((tmp_path / "docs" / "evidence" / page).exists() for page in frontpage.STUDIES.values())
    made = sorted(path.name for path in (tmp_path / "docs" / "assets").iterdir())
    assert made == ["deep_convolutional.png", "deep_networks.png", "singular_values.png"]
    assert frontpage.main([str(tmp_path), *map(str, tmp_path.glob("*.jsonl"))]) == 1
    assert "b.jsonl: expected a file of results" in capsys.readouterr().err


@pytest.mark.parametrize("name", frontpage.STUDIES)
def test_the_page_of_a_study_has_the_tables_of_the_committed_rows(committed, name):
    (chapter,) = (chapter for chapter in committed[0] if chapter.name == name)
    page = (ROOT / "docs" / "evidence" / frontpage.STUDIES[name]).read_text()
    assert page == frontpage.study(chapter), "stale: run `make readme-table`"
