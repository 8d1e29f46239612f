"""Finding a set's files, and saying how to get them."""

from pathlib import Path


def advice(name: str, root: Path) -> str:
    """Return the command that brings the set."""
    return f"`orthosparse data {name} --root {root}` fetches it, or says how to get it"


def first_existing(name: str, root: Path, candidates: list[Path]) -> Path:
    """Return the first path of `candidates` that exists.

    Raises:
        FileNotFoundError: none does; the message names them and the command that fetches the set.
    """
    for path in candidates:
        if path.exists():
            return path
    looked = " or ".join(map(str, candidates))
    raise FileNotFoundError(f"{name}: expected {looked}; {advice(name, root)}")


def corrupt(name: str, root: Path, path: Path, expected: str, got: str) -> ValueError:
    """Return the error for a file that is there but wrong."""
    return ValueError(f"{name}: {path}: expected {expected}; got {got}. The file is damaged: {advice(name, root)}")
