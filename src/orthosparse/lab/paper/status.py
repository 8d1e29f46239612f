"""How much of the paper is measured: the pairs and the cells of every item."""

from collections.abc import Sequence
from typing import Any

from orthosparse.lab.paper._chapters import cells_of
from orthosparse.lab.paper._rows import Row, family
from orthosparse.lab.rendering.contents import Table, plain_table


def status_of(name: str, item: Any, rows: Sequence[Row]) -> dict[str, Any]:
    """Return how many pairs of an item have a row, and how many of the paper's cells have our number."""
    experiments = item.experiments(smoke=False)
    pairs = {(each.key(), seed) for each in experiments for seed in item.SEEDS}
    families = {family(each.key()) for each in experiments}
    own = [row for row in rows if family(row["key"]) in families]
    done = sum((row["key"], row["seed"]) in pairs for row in own)
    status = "complete" if done == len(pairs) else "begun" if own else "not yet run"
    ours, cells = cells_of(item.render(own))
    counts = {"done": done, "pairs": len(pairs), "others": len(own) - done, "our_cells": ours, "cells": cells}
    return {"item": name, **counts, "status": status if pairs else "nothing to run", "title": item.TITLE}


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
