"""The study of aligned starts: ranks of its cells."""

import pytest

from lab.paper.rows import row_of
from orthosparse.lab.experiments.training import group_of
from orthosparse.lab.paper import aligned, frontpage
from orthosparse.lab.paper._chapters import chapters_of

MLP = [each for each in aligned.experiments() if each.model == "mlp"]
LINEAR_SNIP = [
    each
    for each in MLP
    if (each.activation, each.distribution) == ("linear", "snip") and each.options.get("align") != "live"
]


def rows_by_start(accuracies):
    """One row for each start of one cell: base, AI, EOI, aligned, core 0.5, core 0.2."""
    return [row_of(each, 1, test_accuracy=value) for each, value in zip(LINEAR_SNIP, accuracies, strict=True)]


def test_the_starts_of_a_cell_are_ranked_by_their_means():
    *_, note = aligned.render(rows_by_start([0.1, 0.2, 0.3, 0.6, 0.5, 0.4])).notes
    assert (
        "of the MLP (1 is best), cells: 1. EOI, aligned: 1.0; EOI, aligned, core 0.5: 2.0; EOI, aligned, core 0.2: 3.0;"
        in note
    )
    assert note.endswith("EOI: 4.0; AI: 5.0; Base: 6.0.")


@pytest.mark.parametrize("missing", range(6))
def test_a_cell_without_one_of_its_starts_has_no_ranks(missing):
    rows = rows_by_start([0.1, 0.2, 0.3, 0.6, 0.5, 0.4])
    del rows[missing]
    assert not any("Mean rank" in note for note in aligned.render(rows).notes)


def test_seeds_that_only_other_items_have_are_not_compared():
    rows = rows_by_start([0.1, 0.2, 0.3, 0.6, 0.5, 0.4])
    more = row_of(LINEAR_SNIP[0], max(aligned.SEEDS) + 1, test_accuracy=0.9)
    assert aligned.render([*rows, more]) == aligned.render(rows)


def test_the_page_has_the_tables_that_are_measured():
    (chapter,) = chapters_of({"aligned": aligned}, rows_by_start([0.1, 0.2, 0.3, 0.6, 0.5, 0.4]))
    page = frontpage.study(chapter)
    assert "7-layer MLP" in page
    assert "| SNIP | EOI, aligned | ***60.00 n=1*** |" in page
    assert "CIFAR-10" not in page


def is_aligned_at_random(network):
    return network.options.get("tap") == "random" and "align" in network.options


def test_the_table_of_taps_has_the_study_s_own_networks_and_seven_more():
    networks = [each for each in aligned.experiments() if (each.model, each.distribution) == ("resnet32", "snip")]
    rows = [row_of(each, 1, test_accuracy=(number + 1) / 100) for number, each in enumerate(networks)]
    table = aligned.render(rows).tables[2]
    starts = [line.heads[1] for line in table.lines]
    assert starts[:4] == ["Base", "EOI", "EOI, permuted", "EOI, random taps"]
    assert all(few.ours and not other.ours for few, other in table.cells)
    extra = [each for each in networks if each.options.get("start") or each.options.get("align") == "live"]
    assert [each.options for each in extra + [each for each in networks if is_aligned_at_random(each)]] == [
        {"start": "permuted"},
        {"align": "live", "tap": "mask"},
        {"align": "live", "tap": "random"},
        {"align": "mask", "tap": "random"},
        {"align": "live", "tap": "random"},
    ]


def test_residual_networks_are_ranked_by_themselves():
    networks = [each for each in aligned.experiments() if (each.model, each.distribution) == ("resnet56", "grasp")]
    *_, note = aligned.render([row_of(each, 1, test_accuracy=0.1 * n) for n, each in enumerate(networks)]).notes
    assert note.startswith(
        "Mean rank of the starts of the residual networks (1 is best), cells: 1. EOI, aligned, core 0.5: 1.0;"
    )


def test_the_networks_of_other_scales_train_in_one_stack_with_those_of_the_study():
    networks = [each for each in aligned.experiments() if each.model == "resnet56"]
    assert {each.recipe.gain for each in networks} == {0.3, 1.0, 3.0}
    assert len({group_of(each) for each in networks}) == 1
    assert len(networks) == 25  # 3 methods x 5 starts, 7 that the study of scales has alone, and 3 that of taps


def test_the_table_of_scales_shows_the_study_s_own_networks_at_a_gain_of_1():
    networks = [each for each in aligned.experiments() if (each.model, each.distribution) == ("resnet56", "snip")]
    shared = [each for each in networks if each.options.get("start") is None and not is_aligned_at_random(each)]
    rows = [row_of(each, 1, test_accuracy=(number + 1) / 100) for number, each in enumerate(shared)]
    *_, table = aligned.render(rows).tables
    shown = {
        (line.heads[1], column.key): cell.ours[0]
        for line, cells in zip(table.lines, table.cells, strict=True)
        for column, cell in zip(table.columns, cells, strict=True)
        if cell.ours
    }
    assert len(shown) == len(shared) == 12
    assert [shown[name, "1"] for name in ("Base", "EOI", "EOI, random taps", "EOI, aligned")] == [1, 2, 3, 4]
    assert sorted(map(round, shown.values())) == list(range(1, 13))
