from dataclasses import replace

import pytest

from lab.paper.rows import row_of
from orthosparse.lab.paper import deep_networks
from orthosparse.lab.paper.learning import draw, learning_curves

STARTS = deep_networks.starts("mlp1000", "erk")


def rows_of(curves, *, seeds=(1,), name="test_accuracy"):
    return [
        row_of(STARTS[start], seed, test_accuracy=ys[-1], curves={name: [y + 0.01 * seed for y in ys]})
        for start, ys in curves.items()
        for seed in seeds
    ]


def test_the_starts_are_those_of_the_table():
    assert list(STARTS) == ["base", "ai", "eoi", "dense"]
    assert set(STARTS.values()) <= set(deep_networks.experiments())
    assert [each.scheme for each in list(STARTS.values())[:3]] == ["base", "ai", "eoi"]
    assert STARTS["dense"].density == 1
    with pytest.raises(ValueError, match="model: expected one of cnn1000, mlp1000"):
        deep_networks.starts("resnet32", "erk")


def test_curves_are_means_over_seeds_in_percent():
    curves, label = learning_curves(rows_of({"eoi": [0.5, 0.9], "base": [0.1, 0.1]}, seeds=(1, 3)), STARTS)
    assert label == "test accuracy, %"
    assert list(curves) == ["base", "eoi"]
    assert curves["eoi"] == pytest.approx([52.0, 92.0])


def test_rows_of_single_runs_have_the_validation_accuracy():
    mixed = rows_of({"eoi": [0.5]}) + rows_of({"dense": [0.5]}, name="validation_accuracy")
    both = [{**row, "curves": {"validation_accuracy": [0.4], **row["curves"]}} for row in mixed]
    curves, label = learning_curves(both, STARTS)
    assert label == "validation accuracy, %"
    assert curves["eoi"] == [40.0]


def test_the_picture_has_a_curve_for_every_start(tmp_path):
    rows = rows_of({"base": [0.1, 0.1], "ai": [0.3, 0.9], "eoi": [0.5, 0.9], "dense": [0.5, 0.95]})
    path = tmp_path / "assets" / "deep.png"
    figure = draw(rows, path)
    assert path.read_bytes().startswith(b"\x89PNG")
    (axes,) = figure.axes
    assert [line.get_label() for line in axes.get_lines()] == ["base", "AI", "EOI", "dense"]
    assert axes.get_lines()[3].get_ydata().tolist() == pytest.approx([51.0, 96.0])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("epoch", "test accuracy, %")
    again = tmp_path / "again.png"
    draw(rows, again)
    assert again.read_bytes() == path.read_bytes()


def test_without_rows_there_is_no_picture(tmp_path):
    with pytest.raises(ValueError, match="rows: expected some of training mlp1000"):
        draw([], tmp_path / "a.png")


def test_the_page_shows_how_the_networks_learn():
    rows = rows_of({"base": [0.1, 0.1], "eoi": [0.5, 0.9]}, name="validation_accuracy")
    (figure,) = deep_networks.render(rows).figures
    assert [series.label for series in figure.series] == ["Base", "EOI"]
    assert figure.title == "1000-layer MLP (MNIST), ERK"


@pytest.mark.parametrize("change", [{"epochs": 3}, {"precision": "bf16"}])
def test_a_start_that_was_trained_otherwise_has_no_curve_beside_the_others(change):
    rows = rows_of({"base": [0.1, 0.1], "eoi": [0.5, 0.9]}, name="validation_accuracy")
    other = {"validation_accuracy": [0.3, 0.3]}
    rows += [row_of(replace(STARTS["ai"], **change), test_accuracy=0.3, curves=other)]
    assert list(learning_curves(rows, STARTS)[0]) == ["base", "eoi"]
    (figure,) = deep_networks.render(rows).figures  # which has room to say so
    said = "AI (3 epochs in tf32)" if "epochs" in change else "AI (100 epochs in bf16)"
    assert [series.label for series in figure.series] == ["Base", said, "EOI"]
    rows += [row_of(replace(STARTS[start], **change), test_accuracy=0.2, curves=other) for start in ("base", "eoi")]
    assert learning_curves(rows, STARTS)[0] == {start: [30.0, 30.0] for start in ("base", "ai", "eoi")}
    (figure,) = deep_networks.render(rows).figures
    assert [series.label for series in figure.series] == ["Base", "AI", "EOI"]
