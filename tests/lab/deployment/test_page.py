from dataclasses import replace

from orthosparse.deploying import DeployedLayer, DeployTable
from orthosparse.lab.deployment.page import page_of, tables_of
from orthosparse.lab.rendering.html import html_of

ROWS = (
    DeployedLayer("stem", (64, 3, 3, 3), 1.0, "dense", {"dense": 2e-3}, 1.0, "density 1.00"),
    DeployedLayer("body.0", (64, 64), 0.1, "entries", {"dense": 4e-3, "entries": 1e-3}, 4.0),
    DeployedLayer("<head>", (10, 64), 0.5, "block:16", {"dense": 3e-3, "block:16": 2e-3}, 1.5),
    DeployedLayer("unused", (10, 64), 0.5, "dense", note="not reached by the example"),
)
TABLE = DeployTable(
    rows=ROWS,
    latency={"eager": 10e-3, "compiled": 8e-3, "deployed": 2e-3},
    chosen="deployed",
    removed={"stem": 3, "body.0": 0},
    live=1234,
    weights=5678,
    bytes={"given": 100, "deployed": 50},
    error=1e-6,
    notes=("channels-last: refused <why>",),
)


def rendered():
    return html_of(page_of("Title", "Lead", TABLE, {"deployed.pt2": 4321, "model.safetensors": 99}, ["foot"]))


def test_every_layer_has_a_row_and_a_point_that_says_layer_shape_and_times():
    layers, _ = tables_of(TABLE)
    assert [[cell.text for cell in row.cells] for row in layers.rows] == [list(row.cells()) for row in ROWS]
    assert [column.heading for column in layers.columns] == list(TABLE.headings)
    page = rendered()
    assert "body.0 (64x64, density 0.100): dense 4.000 ms, entries 1.000 ms, ratio 4" in page
    assert "&lt;head&gt; (10x64, density 0.500)" in page
    assert "unused (10x64, density 0.500): not reached by the example" in page
    assert "<head> (10x64" not in page


def test_ratios_of_the_whole_network_are_to_its_fastest_form_as_it_was_given():
    _, network = tables_of(TABLE)
    cells = [[cell.text for cell in row.cells] for row in network.rows]
    assert cells == [
        ["eager", "10.000 ms", "0.80x", ""],
        ["compiled", "8.000 ms", "1.00x", ""],
        ["deployed", "2.000 ms", "4.00x", "chosen"],
    ]


def test_the_page_says_totals_notes_and_files_and_asks_nothing_of_the_network():
    page = rendered()
    assert all(
        text in page for text in ("4.00", "2.000 ms instead of 8.000 ms", "1,234", "5,678", "4,321", "deployed.pt2")
    )
    assert "refused &lt;why&gt;" in page
    assert "://" not in page
    assert page.count("<svg") == 2


def test_any_number_of_forms_has_colours():
    forms = ["dense", "dense channels-last", "entries", "2:4", *(f"block:{size}" for size in (16, 32, 64, 128))]
    rows = tuple(DeployedLayer(form, (8, 8), 0.5, form, {"dense": 2e-3, form: 1e-3}, 2.0) for form in forms)
    page = html_of(page_of("Title", "Lead", replace(TABLE, rows=rows), {}, []))
    assert all(f"{form}: {form} (8x8" in page for form in forms)
