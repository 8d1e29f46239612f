"""The starts of the 1000-layer networks, and how they learn."""

from dataclasses import replace

import pytest

from lab.paper.rows import deep_starts, row_of
from orthosparse.lab.paper import deep_networks

STARTS = deep_starts("mlp1000")


def rows_of(curves, *, seeds=(1,), names=("test_accuracy", "validation_accuracy")):
    return [
        row_of(
            STARTS[start], seed, test_accuracy=ys[-1], curves={name: [y + 0.01 * seed for y in ys] for name in names}
        )
        for start, ys in curves.items()
        for seed in seeds
    ]


def figure_of(rows):
    (figure,) = deep_networks.render(rows).figures
    return figure


def test_curves_are_means_over_seeds_in_percent():
    figure = figure_of(rows_of({"eoi": [0.5, 0.9], "base": [0.1, 0.1]}, seeds=(1, 3)))
    assert (figure.title, figure.y) == ("1000-layer MLP (MNIST), ERK", "test accuracy, %")
    assert [series.label for series in figure.series] == ["Base", "EOI"]
    assert figure.series[1].ys == pytest.approx([52.0, 92.0])


def test_rows_of_single_runs_have_the_validation_accuracy():
    mixed = rows_of({"eoi": [0.4]}) + rows_of({"dense": [0.5]}, names=("validation_accuracy",))
    figure = figure_of(mixed)
    assert figure.y == "validation accuracy, %"
    assert figure.series[0].ys == pytest.approx([41.0])


@pytest.mark.parametrize("change", [{"epochs": 3}, {"precision": "bf16"}])
def test_a_start_that_was_trained_in_another_setting_says_so(change):
    rows = rows_of({"base": [0.1, 0.1], "eoi": [0.5, 0.9]})
    other = {"validation_accuracy": [0.3, 0.3]}
    rows += [row_of(replace(STARTS["ai"], **change), test_accuracy=0.3, curves=other)]
    said = "AI (3 of 100 epochs)" if "epochs" in change else "AI (100 epochs in bf16 instead of tf32)"
    assert [series.label for series in figure_of(rows).series] == ["Base", said, "EOI"]
    rows += [row_of(replace(STARTS[start], **change), test_accuracy=0.2, curves=other) for start in ("base", "eoi")]
    # Two whole trainings are compared with each other, whatever else there is; precisions can be the same for all.
    assert [series.label for series in figure_of(rows).series] == ["Base", said if "epochs" in change else "AI", "EOI"]


def test_the_picture_is_the_same_file_twice_and_needs_rows(tmp_path):
    rows = rows_of({"base": [0.1, 0.1], "ai": [0.3, 0.9], "eoi": [0.5, 0.9], "dense": [0.5, 0.95]})
    for name in ("one", "two"):
        deep_networks.save_figure(rows, tmp_path / "assets" / f"{name}.png")
    one, two = ((tmp_path / "assets" / f"{name}.png").read_bytes() for name in ("one", "two"))
    assert one.startswith(b"\x89PNG")
    assert one == two
    with pytest.raises(ValueError, match="model: expected one of cnn1000, mlp1000"):
        deep_networks.save_figure(rows, tmp_path / "a.png", model="resnet32")
    with pytest.raises(ValueError, match=r"rows: expected some of 1000-layer MLP \(MNIST\), ERK; got none"):
        deep_networks.save_figure([], tmp_path / "a.png")
