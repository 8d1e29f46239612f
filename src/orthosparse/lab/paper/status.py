"""How much of the paper is measured: the pairs and the cells of every item."""

from collections.abc import Sequence
from typing import Any

from orthosparse.lab.paper._chapters import Chapter, cells_of
from orthosparse.lab.rendering.contents import Table, plain_table


def status_of(chapter: Chapter) -> dict[str, Any]:
    """Return how many pairs of an item have a row, and how many of the paper's cells have our number."""
    ours, cells = cells_of(chapter.rendered)
    return {
        "item": chapter.name,
        "done": chapter.done,
        "pairs": chapter.pairs,
        "others": len(chapter.rows) - chapter.done,
        "our_cells": ours,
        "cells": cells,
        "status": "complete" if chapter.done == chapter.pairs else "begun" if chapter.rows else "not yet run",
        "title": chapter.title,
    }


def status_table(found: Sequence[dict[str, Any]]) -> Table:
    """Return a row for each item, and the cells of all of them."""
    rows = []
    for each in found:
        more = f", {each['others']} other row{'s' * (each['others'] > 1)}" * (each["others"] > 0)
        cells = f"{each['our_cells']}/{each['cells']}" if each["cells"] else ""
        rows.append([each["item"], f"{each['done']}/{each['pairs']}", cells, each["status"] + more, each["title"]])
    ours, cells = (sum(each[name] for each in found) for name in ("our_cells", "cells"))
    rows.append(["all", "", f"{ours}/{cells}", "", ""])
    return plain_table(("item", "pairs", "cells", "status", "title"), rows, text=(0, 3, 4))
