"""The list of decisions, from the folder: a new page there needs no entry in mkdocs.yml."""

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Put every page of docs/decisions into the navigation, the oldest first."""
    folder = Path(config["docs_dir"]) / "decisions"
    pages = sorted(path.name for path in folder.glob("2*.md"))
    for entry in config["nav"]:
        if "Decisions" in entry:
            entry["Decisions"] = [f"decisions/{name}" for name in ("README.md", *pages)]
    return config
