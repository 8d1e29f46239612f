"""`orthosparse spectra`: the paper's figure of singular values, as rows and as a picture."""

from pathlib import Path
from typing import Annotated

import typer

from orthosparse.lab.commands._options import Json, check_at_least, check_results, counted, print_json, whole_numbers

RESUMES_WITH = ()
_COMPAT = "paper-code computes scores as the paper's released code does."


def spectra(
    root: Annotated[Path, typer.Option(help="Folder that holds MNIST.")] = Path("data"),
    out: Annotated[Path, typer.Option(help="Folder for rows and figures.")] = Path("runs/spectra"),
    seeds: Annotated[str, typer.Option(help="Seeds, such as 1,2,3.")] = "1",
    ai_iterations: Annotated[int | None, typer.Option(help="Iterations of AI; by default the paper's 10000.")] = None,
    compat: Annotated[str | None, typer.Option(help=_COMPAT, autocompletion=lambda: ["paper-code"])] = None,
    limit: Annotated[int | None, typer.Option(help="Compute only this many points, to try the command.")] = None,
    json: Json = False,
) -> None:
    """Reproduce the figure of section 5.1: singular values.

    Computes the singular values of the input-output Jacobian of a 7 x 100 MLP on MNIST before training, against
    density: 648 points per seed, a few minutes on two cores. Rows that --out already has are not computed again, so the
    same command continues where it was stopped. They are the rows of `paper run singular_values` and can be merged
    there.

    \b
    Examples:
      orthosparse spectra --root data --seeds 1,2,3
      orthosparse spectra --limit 20 --ai-iterations 100 --out trial
    """
    from functools import partial

    from orthosparse.hardware import on_threads
    from orthosparse.lab.data import load
    from orthosparse.lab.paper.singular_values import points, save_picture
    from orthosparse.lab.sweep.display import Display
    from orthosparse.lab.sweep.engines import ENGINES
    from orthosparse.lab.sweep.pairs import Pair, perform
    from orthosparse.lab.sweep.rows import export
    from orthosparse.lab.sweep.runner import run as sweep
    from orthosparse.lab.sweep.store import Store

    check_at_least(1, limit=limit)
    check_results(out)
    asked = points(ai_iterations=ai_iterations, compat=compat)[:limit]
    pairs = [Pair(experiment, seed) for seed in whole_numbers(seeds) for experiment in asked]
    load("mnist", root)  # what is wrong with the data is said before anything is made
    store = Store(out / "rows.sqlite")
    with on_threads(1), Display() as display:
        work = partial(perform, root=root, device="cpu")
        summary = sweep(pairs, store, partial(ENGINES["local"], jobs=1), perform=work, display=display)
    if summary.failed:
        raise RuntimeError(f"{summary.failed[0].pair}: {summary.failed[0].error}")
    rows = store.rows(keys={experiment.key() for experiment in asked})
    export(store.rows(), out / "singular_values.jsonl")
    pictures = [out / f"singular_values.{ending}" for ending in ("png", "svg")]
    for picture in pictures:
        save_picture(rows, asked, picture)
    if json:
        print_json({"file": str(out / "singular_values.jsonl"), "pictures": list(map(str, pictures)), "rows": rows})
    else:
        typer.echo(f"{counted(len(rows), 'row')} in {out / 'singular_values.jsonl'}; figures next to it (.png, .svg)")
