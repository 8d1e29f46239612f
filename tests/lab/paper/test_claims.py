"""The answers to the paper's claims follow from rows, and the page has those of the committed ones."""

from dataclasses import replace
from pathlib import Path

import pytest

from lab.paper.rows import deep_starts, row_of
from orthosparse.lab.experiments import experiment_of
from orthosparse.lab.experiments.efficiency import Efficiency
from orthosparse.lab.experiments.init_runtime import InitRuntime
from orthosparse.lab.experiments.training import Training
from orthosparse.lab.paper import ITEMS, singular_values
from orthosparse.lab.paper._chapters import chapters_of
from orthosparse.lab.paper._study import METHODS
from orthosparse.lab.paper.claims import FAILS, HOLDS, OPEN, PARTLY, claims_of, page

ROOT = Path(__file__).parents[3]


def answers(rows):
    return claims_of(chapters_of(ITEMS, rows))


def test_without_rows_nothing_is_answered():
    assert {claim.verdict for claim in answers([]).values()} == {OPEN}


def deep_rows(model, accuracies, **changes):
    found = deep_starts(model)
    return [row_of(replace(found[start], **changes), test_accuracy=value) for start, value in accuracies.items()]


@pytest.mark.parametrize(
    ("eoi", "epochs", "verdict"), [(0.80, None, HOLDS), (0.60, None, PARTLY), (0.11, 8, PARTLY), (0.60, 8, PARTLY)]
)
def test_deep_networks_train_if_eoi_follows_the_dense_one_at_full_length(eoi, epochs, verdict):
    rows = deep_rows("mlp1000", {"base": 0.1, "eoi": 0.96, "dense": 0.97})
    rows += deep_rows("cnn1000", {"base": 0.1, "eoi": eoi, "dense": 0.81}, **({"epochs": epochs} if epochs else {}))
    found = answers(rows)["deep_networks"]
    assert found.verdict == verdict
    short = " (8 of 100 epochs)" if epochs else ""
    assert f"EOI {100 * eoi:.2f} %{short}, dense 81.00 %{short}, base 10.00 %{short}." in found.answer


@pytest.mark.parametrize("dense", [0.60, 0.95])
def test_a_whole_training_of_eoi_is_not_compared_with_a_short_one_of_the_dense_network(dense):
    rows = deep_rows("mlp1000", {"base": 0.1, "eoi": 0.96, "dense": 0.97}) + deep_rows("cnn1000", {"eoi": 0.8})
    rows += deep_rows("cnn1000", {"base": 0.1, "eoi": 0.5, "dense": dense}, epochs=8)
    found = answers(rows)["deep_networks"]
    assert found.verdict == PARTLY
    short = "(8 of 100 epochs)"
    assert f"EOI 80.00 %, dense {100 * dense:.2f} % {short}, base 10.00 % {short}." in found.answer


def test_deep_networks_hold_in_part_while_base_trained_for_fewer_epochs():
    rows = deep_rows("mlp1000", {"eoi": 0.96, "dense": 0.97}) + deep_rows("mlp1000", {"base": 0.1}, epochs=8)
    assert answers(rows)["deep_networks"].counts.startswith("holds in part: 1 of 2")
    rows[0]["metrics"]["test_accuracy"] = 0.9
    assert answers(rows)["deep_networks"].counts.startswith("does not hold: 1 of 2")


@pytest.mark.parametrize("seeds", [[1], [1, 2]])
def test_a_deep_network_of_which_a_seed_diverged_does_not_train(seeds):
    rows = deep_rows("mlp1000", {"base": 0.1, "dense": 0.97})
    rows += [row_of(deep_starts("mlp1000")["eoi"], seed, test_accuracy=0.96) for seed in seeds]
    rows[-1]["metrics"] = {"diverged": True}
    found = answers(rows)["deep_networks"]
    assert found.counts.startswith("does not hold: 1 of 2")
    assert ("EOI diverged, dense 97.00 %" if len(seeds) == 1 else "EOI 96.00 % (1 of 2 diverged)") in found.answer


def test_deep_networks_do_not_train_if_eoi_stays_at_chance():
    rows = [row for model in ("mlp1000", "cnn1000") for row in deep_rows(model, dict.fromkeys(("base", "eoi"), 0.1))]
    rows += [row for model in ("mlp1000", "cnn1000") for row in deep_rows(model, {"dense": 0.8})]
    assert answers(rows)["deep_networks"].verdict == FAILS


def rank_rows(distributions, seeds=(1, 2), **changes):
    schemes = {"base": 0.89, "ai": 0.88, "eoi": 0.90}
    return [
        row_of(
            Training("resnet32", "cifar10", 0.1, distribution, scheme, **changes),
            seed,
            test_accuracy=value + seed / 100,
        )
        for distribution in distributions
        for scheme, value in schemes.items()
        for seed in seeds
    ]


def test_ranks_hold_in_part_until_all_networks_are_measured_and_seeds_are_paired():
    rows = rank_rows(METHODS)
    found = answers(rows)["ranks"]
    assert found.verdict == PARTLY
    assert "EOI minus Base, paired by seed: +1.00 ± 0.00, more than two standard errors" in found.answer
    assert "5 of 6 networks are not measured." in found.answer
    assert found.counts == "holds: 1 of 6, not decided yet: 5 of 6"


@pytest.mark.parametrize(("distributions", "changes"), [(["erk", "snip"], {}), (METHODS, {"epochs": 8})])
def test_ranks_stay_open_until_every_distribution_is_measured_at_the_papers_epochs(distributions, changes):
    found = answers(rank_rows(distributions, **changes))["ranks"]
    assert found.counts == "not decided yet: 6 of 6"
    assert "ResNet32 (CIFAR-10): mean rank Base 2.00, AI 3.00, EOI 1.00" in found.answer


@pytest.mark.parametrize(
    ("base", "ai", "eoi", "verdict", "led"),
    [(0.88, 0.89, 0.90, PARTLY, 5), (0.89, 0.90, 0.88, FAILS, 0), (0.90, 0.88, 0.89, FAILS, 0)],
)
def test_activations_hold_where_eoi_leads_under_as_many_distributions_as_in_the_paper(base, ai, eoi, verdict, led):
    asked = [
        each for each in ITEMS["activations"].experiments() if (each.model, each.activation) == ("resnet32", "selu")
    ]
    accuracies = {"base": base, "ai": ai, "eoi": eoi}
    rows = [row_of(each, test_accuracy=accuracies[each.scheme]) for each in asked if each.density < 1]
    assert len(rows) == 15
    found = answers(rows)["activations"]
    assert found.verdict == verdict
    assert f"ResNet32 SELU: EOI leads under {led} of 5 distributions (the paper: 5); mean rank" in found.answer
    assert "5 of 6 columns are not measured." in found.answer
    assert answers(rows[1:])["activations"].verdict == OPEN


def test_a_start_that_diverged_is_ranked_last_among_activations():
    asked = [
        each for each in ITEMS["activations"].experiments() if (each.model, each.activation) == ("resnet32", "selu")
    ]
    accuracies = {"base": 0.88, "ai": 0.89, "eoi": 0.90}
    rows = [row_of(each, test_accuracy=accuracies[each.scheme]) for each in asked if each.density < 1]
    for row in rows:
        if (row["fields"]["distribution"], row["fields"]["scheme"]) == ("snip", "eoi"):
            row["metrics"] = {"diverged": True}
    assert "ResNet32 SELU: EOI leads under 4 of 5 distributions" in answers(rows)["activations"].answer


def test_starts_of_two_precisions_are_not_ranked_against_each_other():
    asked = [
        each for each in ITEMS["activations"].experiments() if (each.model, each.activation) == ("resnet32", "selu")
    ]
    asked = [replace(each, precision="bf16") if each.scheme == "eoi" else each for each in asked if each.density < 1]
    found = answers([row_of(each, test_accuracy=0.9) for each in asked])["activations"]
    assert found.counts == "not decided yet: 6 of 6"


def test_the_cost_of_ai_is_that_of_a_matrix_and_of_a_network():
    rows = [row_of(Efficiency("eoi", 16, 0.0625), seconds=0.001), row_of(Efficiency("ai-plain", 16, 0.0625), seconds=1)]
    assert answers(rows)["cost"].verdict == HOLDS
    for scheme, seconds in (("base", 10.0), ("ai", 90.0), ("eoi", 11.0)):
        rows.append(row_of(InitRuntime("resnet32", "cifar10", "erk", scheme), seconds=seconds, sparsify_seconds=1.0))
    found = answers(rows)["cost"]
    assert found.verdict == HOLDS
    assert "AI takes 1,000 to 1,000 times" in found.answer
    assert "AI adds 80.00 s to the first epoch, EOI 1.00 s" in found.answer
    rows[3]["metrics"]["seconds"] = 12.0
    assert answers(rows)["cost"].verdict == PARTLY


def test_times_of_a_few_iterations_of_ai_are_not_taken_for_those_of_all():
    times = {("eoi", 16): 0.001, ("ai-plain", 16): 1.0, ("eoi", 1024): 0.001, ("ai-plain", 1024): 0.2}
    asked = {(each.method, each.size): each for each in ITEMS["efficiency"].experiments() if each.density == 0.0625}
    found = answers([row_of(asked[place], seconds=value) for place, value in times.items()])["cost"]
    assert "One matrix, n = 16: AI takes 1,000 to 1,000 times as long as EOI" in found.answer
    assert "One matrix, n = 1024, after 200 iterations instead of 10,000: AI takes 200 to 200 times" in found.answer
    assert found.verdict == HOLDS


def spectrum_rows(**means):
    """Rows of every start at density 0.05, and of the dense network, of which the means are fractions."""
    dense = {"linear": 1.0, "relu": 0.1, "tanh": 0.3, "hardtanh": 0.6}
    asked = [each for each in singular_values.points() if each.density in (0.05, 1.0)]
    return [
        row_of(each, mean=dense[each.activation] * (1 if each.density == 1 else means[each.scheme]), max=1.0)
        for each in asked
    ]


@pytest.mark.parametrize(
    ("ai", "eoi", "verdict"),
    [(0.5, 1.0, HOLDS), (0.5, 0.7, PARTLY), (0.5, 1.4, PARTLY), (0.9, 0.85, PARTLY), (0.8, 0.7, FAILS)],
)
def test_singular_values_hold_if_those_of_eoi_are_the_dense_networks_and_of_base_the_smallest(ai, eoi, verdict):
    found = answers(spectrum_rows(base=0.1, ai=ai, eoi=eoi))["spectra"]
    assert found.counts == f"{verdict}: 4 of 4"
    assert "tanh: dense 0.300, Base 0.030 to 0.030" in found.answer


def test_singular_values_of_every_activation_count():
    rows = spectrum_rows(base=0.1, ai=0.5, eoi=1.0)
    for row in rows:
        if (row["fields"]["activation"], row["fields"]["scheme"], row["fields"]["density"]) == ("tanh", "eoi", 0.05):
            row["metrics"]["mean"] = 0.5
    assert answers(rows)["spectra"].counts == "holds: 3 of 4, holds in part: 1 of 4"
    assert answers(rows[1:])["spectra"].counts == "holds: 2 of 4, holds in part: 1 of 4, not decided yet: 1 of 4"


def mlp_losses(distribution, **by_scheme):
    """Rows of the ReLU perceptron: by start, the loss of each of twelve epochs, for seeds 1, 2 and 3."""
    return [
        row_of(each, seed, curves={"loss": [loss] * 10 + [0.0] * 2}, test_accuracy=0.9)
        for each in ITEMS["loss_curves"].experiments()
        if (each.activation, each.distribution) == (None, distribution)
        for seed, loss in enumerate(by_scheme[each.scheme], 1)
    ]


@pytest.mark.parametrize(
    ("eoi", "counts", "ai_ahead", "eoi_ahead"),
    [
        ([0.50, 0.51, 0.52], "holds: 1 of 18", 0, 1),
        ([0.50, 0.51, 0.95], "holds in part: 1 of 18", 0, 0),  # lower, by less than two standard errors
        ([0.92, 0.93, 0.92], "does not hold: 1 of 18", 1, 0),
    ],
)
def test_first_losses_are_compared_seed_by_seed_with_their_standard_errors(eoi, counts, ai_ahead, eoi_ahead):
    rows = mlp_losses("erk", base=[0.90, 0.91, 0.92], ai=[0.60, 0.70, 0.80], eoi=eoi)
    found = answers(rows)["loss_curves"]
    assert found.counts.startswith(counts)
    assert found.counts.endswith("not decided yet: 17 of 18")
    assert "AI is clearly below base in 1, " in found.answer
    assert f" below EOI in {ai_ahead}, and EOI is clearly below AI in {eoi_ahead}." in found.answer
    exception = f"ReLU ERK {sum(eoi) / 3:.3f} (base 0.910)"
    assert (exception in found.answer) != (counts == "holds: 1 of 18")


def test_runs_without_losses_or_with_lost_ones_decide_nothing():
    rows = mlp_losses("erk", base=[0.9], ai=[0.8], eoi=[None])
    assert answers(rows)["loss_curves"].verdict == OPEN
    for row in rows:
        row["curves"] = {}
    assert answers(rows)["loss_curves"].verdict == OPEN


def test_a_run_that_diverged_in_its_first_epochs_has_no_mean_of_them():
    rows = mlp_losses("erk", base=[0.9, 0.9], ai=[0.8, 0.8], eoi=[0.5, 0.5])
    for row in rows:
        if row["fields"]["scheme"] == "eoi":
            row["curves"]["loss"] = [0.5] * 3
            row["metrics"] = {"diverged": True, "diverged_epoch": 4}
    assert answers(rows)["loss_curves"].verdict == OPEN


@pytest.mark.parametrize("changes", [{"epochs": 12}, {"precision": "bf16"}])
def test_first_losses_of_trainings_in_two_settings_are_not_compared(changes):
    rows = mlp_losses("erk", base=[0.9, 0.9], ai=[0.8, 0.8], eoi=[0.5, 0.5])
    for row in rows:
        if row["fields"]["scheme"] == "eoi":
            training = replace(experiment_of(row["key"]), **changes)
            row |= {"key": training.key(), "fields": training.described()}
    assert answers(rows)["loss_curves"].verdict == OPEN


def angle_rows(losses, accuracies, seeds=(1,)):
    return [
        row_of(each, seed, curves={"loss": [loss] * 20 + [5.0]}, test_accuracy=accuracy)
        for each, loss, accuracy in zip(ITEMS["angles"].experiments(), losses, accuracies, strict=True)
        for seed in seeds
    ]


@pytest.mark.parametrize(
    ("losses", "accuracies", "counts"),
    [
        ([0.7, 0.9, 0.8], [0.90, 0.89, 0.90], "holds: 2 of 2"),
        ([0.7, 0.8, 0.9], [0.90, 0.89, 0.90], "holds: 1 of 2, does not hold: 1 of 2"),
        ([0.7, 0.9, 0.8], [0.90, 0.88, 0.90], "holds: 1 of 2, does not hold: 1 of 2"),
    ],
)
def test_small_angles_have_the_highest_first_loss_and_end_with_the_others(losses, accuracies, counts):
    found = answers(angle_rows(losses, accuracies))["angles"]
    assert found.counts == counts
    assert f"random angle {losses[0]:.3f}, small angle (1 degree) {losses[1]:.3f}" in found.answer


def test_one_seed_with_another_order_refutes_the_slow_beginning_of_small_angles():
    rows = angle_rows([0.7, 0.9, 0.8], [0.9] * 3, (1, 2))
    rows[2]["curves"]["loss"] = [0.6] * 20
    assert answers(rows)["angles"].counts == "holds: 1 of 2, does not hold: 1 of 2"


def test_angles_are_not_decided_by_a_short_training_and_name_what_is_missing():
    rows = angle_rows([0.7, 0.9, 0.8], [0.9] * 3)
    short = replace(ITEMS["angles"].experiments()[1], epochs=5)
    rows[1] = row_of(short, curves={"loss": [0.9] * 5}, test_accuracy=0.5)
    found = answers(rows)["angles"]
    assert found.verdict == OPEN
    assert "small angle (1 degree) 50.00 % (5 of 200 epochs), large" in found.answer
    assert "small angle (1 degree) not measured, large" in answers([rows[0], rows[2]])["angles"].answer


def test_a_small_angle_with_which_a_seed_diverged_is_not_competitive():
    rows = angle_rows([0.7, 0.9, 0.8], [0.9] * 3, (1, 2))
    rows[2]["metrics"] = {"diverged": True, "diverged_epoch": 22}
    found = answers(rows)["angles"]
    assert found.counts == "holds: 1 of 2, does not hold: 1 of 2"
    assert "small angle (1 degree) 90.00 % (1 of 2 diverged)" in found.answer


def deep_snip(seeds, **metrics):
    return [
        row_of(Training(model, "cifar10", 0.05, "snip"), seed, **metrics)
        for model in ("resnet56", "resnet110")
        for seed in seeds
    ]


@pytest.mark.parametrize(
    ("rows", "verdict", "answer"),
    [
        (deep_snip([1], test_accuracy=0.3), HOLDS, "ResNet56 (CIFAR-10): 30.00 % (n = 1, 1 failed)."),
        (deep_snip([1], test_accuracy=None), HOLDS, "ResNet110 (CIFAR-10): diverged (n = 1, 1 failed)."),
        (deep_snip([1], diverged=True), HOLDS, "ResNet110 (CIFAR-10): diverged (n = 1, 1 failed)."),
        (
            deep_snip([1], test_accuracy=0.88) + deep_snip([2], diverged=True),
            HOLDS,
            "ResNet56 (CIFAR-10): 88.00 % (n = 2, 1 failed).",
        ),
        (deep_snip([1, 2, 3, 4], test_accuracy=0.88), OPEN, "ResNet56 (CIFAR-10): 88.00 % (n = 4)."),
        (deep_snip([1, 2, 3, 4, 5], test_accuracy=0.88), FAILS, "ResNet56 (CIFAR-10): 88.00 % (n = 5)."),
    ],
)
def test_snip_at_five_percent_holds_once_a_seed_fails_and_does_not_if_as_many_train_as_the_paper_has(
    rows, verdict, answer
):
    found = answers(rows)["snip"]
    assert found.verdict == verdict
    assert answer in found.answer


def test_snip_at_five_percent_says_what_a_lower_rate_gives():
    assert answers([])["snip"].answer == "At a learning rate of 0.01: not measured."
    slow = row_of(Training("resnet56", "cifar10", 0.05, "snip", lr=0.01), test_accuracy=0.85)
    assert "At a learning rate of 0.01: ResNet56 (CIFAR-10): EOI 85.00 %." in answers([slow])["snip"].answer


def test_snip_at_five_percent_stays_open_where_ours_trained_for_fewer_epochs():
    rows = [
        row_of(Training(model, "cifar10", 0.05, "snip", epochs=50), test_accuracy=0.88)
        for model in ("resnet56", "resnet110")
    ]
    found = answers(rows)["snip"]
    assert found.verdict == OPEN
    assert "ResNet56 (CIFAR-10): 88.00 % (n = 1, 50 of 200 epochs)." in found.answer


def dynamic_rows(model, moving, ai=0.89, **changes):
    """Rows of two seeds: static EOI 0.9, base 0.88, and AI, SET and RigL as asked."""
    network = model, "cifar10", 0.1
    starts = {Training(*network): 0.9, Training(*network, scheme="base"): 0.88, Training(*network, scheme="ai"): ai}
    starts |= {Training(*network, scheme="base", dynamic=name, **changes): moving for name in ("set", "rigl")}
    return [
        row_of(each, seed, test_accuracy=accuracy + seed / 100) for each, accuracy in starts.items() for seed in (1, 2)
    ]


@pytest.mark.parametrize(
    ("moving", "ai", "verdict"), [(0.901, 0.89, HOLDS), (0.95, 0.89, PARTLY), (0.85, 0.89, FAILS), (0.901, 0.91, FAILS)]
)
def test_dynamic_training_is_compared_with_every_static_start_and_with_the_deviation(moving, ai, verdict):
    rows = dynamic_rows("resnet56", moving, ai)
    found = answers(rows)["dynamic"]
    assert found.counts == f"{verdict}: 2 of 4, not decided yet: 2 of 4"
    assert found.answer.endswith("ResNet32 (CIFAR-10): not decided yet.")
    assert answers(rows + dynamic_rows("resnet32", moving, ai))["dynamic"].verdict == verdict


def test_without_one_of_the_static_starts_nothing_is_said_of_dynamic_training():
    rows = [row for row in dynamic_rows("resnet56", 0.901) if row["fields"]["scheme"] != "ai"]
    assert answers(rows)["dynamic"].counts == "not decided yet: 4 of 4"


@pytest.mark.parametrize("changes", [{"epochs": 8}, {"precision": "bf16"}])
def test_dynamic_training_is_not_compared_with_a_static_one_in_another_setting(changes):
    assert answers(dynamic_rows("resnet56", 0.901, **changes))["dynamic"].counts == "not decided yet: 4 of 4"


def test_seeds_of_dynamic_training_that_diverged_decide_nothing():
    rows = dynamic_rows("resnet56", 0.901)
    rows[-1]["metrics"] = {"diverged": True}
    assert answers(rows)["dynamic"].counts == "holds: 1 of 4, not decided yet: 3 of 4"


def test_cells_that_several_tables_show_are_compared_with_the_paper_once():
    dense = Training("resnet32", "cifar10", dense_init="default")
    rows = [row_of(dense, test_accuracy=0.9268), row_of(Training("resnet32", "cifar10", 0.1), test_accuracy=0.95)]
    found = page.agreement(chapters_of(ITEMS, rows))
    assert found.startswith("2 test accuracies can be compared with the paper's; 1 of them")


def test_every_claim_has_a_rule_with_its_thresholds():
    rules = {name: claim.rule for name, claim in answers([]).items()}
    assert all(rule.endswith(".") for rule in rules.values())
    assert "at least 60 s to the first epoch" in rules["cost"]
    assert "below 80 %" in rules["snip"]


def test_the_page_has_the_answers_of_the_committed_rows(committed):
    chapters, problems = committed
    assert problems == []
    expected = page.markdown(chapters)
    assert (ROOT / "docs" / "evidence" / "claims.md").read_text() == expected, "stale: run `make readme-table`"
