import pytest

from orthosparse.lab.bench.training import Setting, measure, table

METHODS = ["plain eager", "dense", "masked"]


@pytest.fixture(scope="module", params=["tf32", "bf16"])
def measured(request):
    setting = Setting(models=["mlp"], steps=2, repeats=1, device="cpu", precision=request.param)
    rows = measure(setting)
    return table(setting, rows), rows


def test_every_method_has_a_row_and_a_line(measured):
    text, rows = measured
    assert [row["method"] for row in rows] == METHODS
    assert all(method in text for method in METHODS)
    assert "s/epoch" in text


def test_ratios_are_those_of_the_times(measured):
    plain, dense, masked = measured[1]
    assert plain["faster_than_plain"] == 1
    assert dense["cost_against_dense"] == 0
    assert dense["faster_than_plain"] == pytest.approx(plain["seconds_per_epoch"] / dense["seconds_per_epoch"])
    assert 1 + masked["cost_against_dense"] == pytest.approx(masked["seconds_per_epoch"] / dense["seconds_per_epoch"])
    assert masked["density"] == 0.1
    # 45,000 images in batches of 128.
    assert dense["seconds_per_epoch"] == pytest.approx(352 * dense["milliseconds_per_step"] / 1e3)


@pytest.mark.gpu
def test_every_method_runs_on_a_gpu():
    rows = measure(Setting(models=["resnet32"], steps=4, repeats=1, device="cuda"))
    assert [row["method"] for row in rows] == METHODS
