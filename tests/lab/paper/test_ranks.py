"""Ranks by hand."""

from dataclasses import replace

import pytest

from lab.paper.rows import row_of
from orthosparse.lab.experiments import experiment_of
from orthosparse.lab.paper import ranks
from orthosparse.lab.paper._study import METHODS

STARTS = ("base", "ai", "eoi")


def rows_of(means, **changes):
    """Rows of ResNet32: a test accuracy for each (distribution, scheme)."""
    found = {
        (each.distribution, each.scheme): each
        for each in ranks.experiments()
        if (each.model, each.data) == ("resnet32", "cifar10")
    }
    return [row_of(replace(found[place], **changes), test_accuracy=mean) for place, mean in means.items()]


def column_of(rendered):
    return [cells[0] for cells in rendered.tables[0].cells]


def test_the_papers_ranks_follow_from_its_table():
    base, ai, eoi = column_of(ranks.render([]))
    # ERK 3 2 1, GraSP 3 2 1, SNIP 2 3 1, SynFlow 3 2 1, Uniform 2 3 1
    assert (base.paper[0], ai.paper[0], eoi.paper[0]) == pytest.approx((13 / 5, 12 / 5, 1))


def test_a_distribution_counts_once_all_starts_have_a_row():
    means = {("erk", "base"): 0.7, ("erk", "ai"): 0.8, ("erk", "eoi"): 0.9, ("snip", "base"): 0.99}
    rendered = ranks.render(rows_of(means))
    assert [cell.ours for cell in column_of(rendered)] == [(3.0, None), (2.0, None), (1.0, None)]
    assert column_of(rendered)[0].note == "1 of 5 distributions, 1 seed"
    assert rendered.notes == [
        "ResNet32 (CIFAR-10): EOI is ahead of Base, mean rank 1.00 against 3.00 (1 of 5 distributions, 1 seed)."
    ]


def test_a_mean_over_some_distributions_is_not_compared_with_the_papers_over_all():
    means = {(method, start): 0.7 + place / 100 for method in METHODS for place, start in enumerate(STARTS)}
    every = column_of(ranks.render(rows_of(means)))
    assert [cell.difference for cell in every] == pytest.approx([3 - 13 / 5, 2 - 12 / 5, 0])
    some = {place: mean for place, mean in means.items() if place[0] != "snip"}
    assert [cell.difference for cell in column_of(ranks.render(rows_of(some)))] == [None] * 3


def test_ranks_have_the_fewest_seeds_of_what_they_are_made_of_and_name_the_most():
    means = {("erk", start): 0.8 for start in STARTS}
    more = [row_of(experiment_of(row["key"]), 2, **row["metrics"]) for row in rows_of({("erk", "eoi"): 0.9})]
    rendered = ranks.render([*rows_of(means), *more])
    cell = column_of(rendered)[2]
    assert (cell.seeds, cell.note) == (1, "1 of 5 distributions, 1 to 2 seeds")


@pytest.mark.parametrize(("lost", "expected"), [("eoi", [2.0, 1.0, 3.0]), ("base", [3.0, 2.0, 1.0])])
def test_a_start_with_a_seed_that_diverged_is_behind_those_without(lost, expected):
    rows = rows_of({("erk", "base"): 0.7, ("erk", "ai"): 0.8, ("erk", "eoi"): 0.9})
    alone = [row for row in rows if row["fields"]["scheme"] != lost]
    bad = rows_of({("erk", lost): 0.0})[0]
    bad = bad | {"metrics": {"diverged": True}}
    assert [cell.ours[0] for cell in column_of(ranks.render([*alone, bad]))] == expected
    assert [cell.ours[0] for cell in column_of(ranks.render([*rows, bad | {"seed": 2}]))] == expected


def test_it_says_so_when_eoi_is_not_ahead():
    rendered = ranks.render(rows_of({("erk", "base"): 0.9, ("erk", "ai"): 0.8, ("erk", "eoi"): 0.9}))
    assert [cell.ours[0] for cell in column_of(rendered)] == [1.5, 3.0, 1.5]
    assert "EOI is not ahead of Base" in rendered.notes[0]
    assert ranks.render([]).notes == []


def test_long_trainings_are_ranked_among_themselves_and_short_ones_too():
    long = rows_of({("erk", "base"): 0.95, ("erk", "eoi"): 0.96})
    short = {("erk", "ai"): 0.9, **{("snip", start): 0.8 + place / 100 for place, start in enumerate(STARTS)}}
    rendered = ranks.render([*long, *rows_of(short, epochs=20)])
    assert column_of(rendered)[2].ours == (1.0, None)  # of SNIP alone
    assert column_of(rendered)[2].note == "1 of 5 distributions, 1 seed; 20 of 200 epochs"
    whole = {**short, ("erk", "base"): 0.91, ("erk", "eoi"): 0.89}
    rendered = ranks.render([*long, *rows_of(whole, epochs=20)])  # two starts of ERK are whole, the third is not
    assert rendered.notes[0].endswith("(1 of 5 distributions, 1 seed; 20 of 200 epochs).")
    rendered = ranks.render(rows_of(whole, epochs=20))
    assert [cell.ours[0] for cell in column_of(rendered)] == [2.0, 2.0, 2.0]  # ERK 1 2 3, SNIP 3 2 1
    assert rendered.notes[0].endswith("(2 of 5 distributions, 1 seed; 20 of 200 epochs).")


def test_precisions_are_ranked_among_themselves():
    plain = rows_of({("erk", "base"): 0.95, ("erk", "eoi"): 0.96, ("snip", "base"): 0.5})
    low = {("erk", "ai"): 0.9, **{("snip", start): 0.8 + place / 100 for place, start in enumerate(STARTS)}}
    rendered = ranks.render([*plain, *rows_of(low, precision="bf16")])
    assert column_of(rendered)[2].ours == (1.0, None)  # of SNIP alone
    assert column_of(rendered)[2].note == "1 of 5 distributions, 1 seed; 200 epochs in bf16 instead of tf32"
    whole = {**low, ("erk", "base"): 0.91, ("erk", "eoi"): 0.89}
    rendered = ranks.render([*plain, *rows_of(whole, precision="bf16")])
    assert [cell.ours[0] for cell in column_of(rendered)] == [2.0, 2.0, 2.0]  # ERK 1 2 3, SNIP 3 2 1
    assert rendered.notes[0].endswith("(2 of 5 distributions, 1 seed; 200 epochs in bf16 instead of tf32).")


def test_a_rank_knows_the_rows_that_it_is_made_of():
    rows = rows_of({("erk", start): 0.9 for start in STARTS}) + rows_of({("erk", "eoi"): 0.1}, precision="bf16")
    rows += rows_of({("snip", "base"): 0.9})
    cells = column_of(ranks.render(rows))
    assert [row for cell in cells for row in cell.rows] == rows[:3]


def test_the_figure_has_the_papers_ranks_hollow_and_ours_full():
    drawn = ranks.render(rows_of({("erk", "base"): 0.7, ("erk", "ai"): 0.8, ("erk", "eoi"): 0.9})).figures[0]
    points = {(series.label, series.points): series for series in drawn.series}
    assert points["EOI, paper", "hollow"].ys == pytest.approx([1.0, 1.0, 1.6, 1.2, 2.4, 1.5])
    assert [points[f"{label}, ours", "full"].ys for label in ("Base", "AI", "EOI")] == [[3.0], [2.0], [1.0]]
    assert all(round(x) == 0 for series in drawn.series if series.points == "full" for x in series.xs)
    assert len({round(x, 3) for series in drawn.series for x in series.xs}) == 21  # none hides another
    assert len(ranks.render([]).figures[0].series) == 3
