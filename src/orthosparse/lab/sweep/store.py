"""Rows that last: an append-only store of results, and the claims of those who are working on more.

The store is one SQLite file in WAL mode, so that writers on one machine never block readers and a killed one leaves
whole transactions only. It must not lie on a network file system, where WAL does not work. Text files of rows (see
`rows.export`) travel between stores.
"""

import json
import os
import secrets
import socket
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orthosparse.lab.sweep.rows import compact_json, differences, problem_of, read_text


@dataclass(frozen=True)
class Owner:
    """One runner: where it lives, and a word that no other runner has."""

    host: str
    pid: int
    word: str

    @classmethod
    def here(cls) -> "Owner":
        """Return a new owner in this process."""
        return cls(socket.gethostname(), os.getpid(), secrets.token_hex(4))

    @classmethod
    def parse(cls, text: str) -> "Owner":
        """Return the owner whose `str` this is.

        Example:
            >>> Owner.parse("lab:7:ab") == Owner("lab", 7, "ab")
            True
        """
        host, pid, word = text.rsplit(":", 2)
        return cls(host, int(pid), word)

    def is_gone(self) -> bool:
        """Return whether the process is known to be gone: it was on this machine, and its number is free."""
        if self.host != socket.gethostname():
            return False
        try:
            os.kill(self.pid, 0)  # signal 0 only asks
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.word}"


EXPIRY = 60.0  # seconds without a heartbeat after which a claim is void
_PATIENCE = 60.0  # seconds that a process waits for others
_VERSION = 1
# In one statement, as another process may make the same store meanwhile.
_ABOUT = "SELECT user_version, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS rows (
    key TEXT NOT NULL, seed INTEGER NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (key, seed)
);
CREATE TRIGGER IF NOT EXISTS rows_stay BEFORE UPDATE ON rows BEGIN SELECT RAISE(ABORT, 'rows are append-only'); END;
CREATE TRIGGER IF NOT EXISTS rows_last BEFORE DELETE ON rows BEGIN SELECT RAISE(ABORT, 'rows are append-only'); END;
CREATE TABLE IF NOT EXISTS claims (
    key TEXT NOT NULL, seed INTEGER NOT NULL, owner TEXT NOT NULL, beat REAL NOT NULL, PRIMARY KEY (key, seed)
);
"""


@dataclass(frozen=True)
class Merge:
    """What a merge did.

    Attributes:
        added: rows that are new here.
        known: rows that were here already.
        differing: for each pair of which another row is here, which was kept: the key, the seed, and in what they
            differ (the value here, the value there).
        problems: what could not be read, a line each.
    """

    added: int = 0
    known: int = 0
    differing: list[tuple[str, int, list[str]]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Store:
    """The rows in one file, made if it is not there.

    A row is a dictionary of ``key, seed, kind, fields, metrics, curves, commit, versions, device, wall_s, time``. There
    is one for each key and seed, and none is ever changed.

    Raises:
        ValueError: the file is no store, or one of another version, or cannot be written.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).expanduser()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._check_file()
            with self._writing() as database:
                for statement in _SCHEMA.split(";\n"):
                    database.execute(statement)
                database.execute(f"PRAGMA user_version = {_VERSION}")
        except (OSError, sqlite3.OperationalError) as error:  # not writable, a full disk, a lock
            raise ValueError(
                f"store: expected a writable file in a writable folder; got {self.path} ({error})"
            ) from error
        except sqlite3.DatabaseError as error:
            raise ValueError(
                f"store: expected a file of results; {self.path} cannot be used as one ({error})"
            ) from error

    def _check_file(self) -> None:
        """Raise a ValueError for a database of another program or version, before anything in it is changed."""
        with closing(sqlite3.connect(self.path, timeout=_PATIENCE)) as database:
            version, tables = database.execute(_ABOUT).fetchone()
        if version == 0 and tables:
            raise ValueError(f"store: expected a file of results; {self.path} is a database of another program")
        if version not in (0, _VERSION):
            raise ValueError(f"store: {self.path} has version {version}; this program reads {_VERSION}")

    @property
    def runs(self) -> Path:
        """The folder beside the file in which runs keep their checkpoints."""
        return self.path.parent / f"{self.path.stem}-runs"

    def append(self, row: dict[str, Any]) -> bool:
        """Keep a row and end the claim on its pair; return whether it is new (the first of a pair stays).

        Raises:
            ValueError: it is none, as those that read rows could not read it.
        """
        if wrong := problem_of(row):
            raise ValueError(f"row: expected one that can be read again; {wrong}")
        with self._writing() as database:
            database.execute("DELETE FROM claims WHERE key = ? AND seed = ?", (row["key"], row["seed"]))
            return _insert(database, row)

    def rows(self, keys: Collection[str] | None = None) -> list[dict[str, Any]]:
        """Return all rows, or those of some keys, in the order of their keys and seeds."""
        wanted = None if keys is None else set(keys)
        with self._reading() as database:
            found = database.execute("SELECT key, body FROM rows ORDER BY key, seed")
            return [json.loads(body) for key, body in found if wanted is None or key in wanted]

    def names(self) -> set[tuple[str, int]]:
        """Return the key and the seed of every row."""
        with self._reading() as database:
            return set(database.execute("SELECT key, seed FROM rows"))

    def claim(self, key: str, seed: int, owner: Owner, *, expiry: float = EXPIRY) -> bool:
        """Return whether the pair is `owner`'s to work on: it has no row, and nobody else is working on it.

        A claim is void when its owner has not sent a `heartbeat` for `expiry` seconds, or is known to be gone.
        """
        with self._writing() as database:
            if database.execute("SELECT 1 FROM rows WHERE key = ? AND seed = ?", (key, seed)).fetchone():
                return False
            held = database.execute("SELECT owner, beat FROM claims WHERE key = ? AND seed = ?", (key, seed)).fetchone()
            now = time.time()
            if held and held[0] != str(owner) and now - held[1] < expiry and not Owner.parse(held[0]).is_gone():
                return False
            database.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)", (key, seed, str(owner), now))
            return True

    def heartbeat(self, owner: Owner) -> int:
        """Renew all claims of `owner`, and return how many it has."""
        with self._writing() as database:
            return database.execute("UPDATE claims SET beat = ? WHERE owner = ?", (time.time(), str(owner))).rowcount

    def release(self, owner: Owner, name: tuple[str, int] | None = None) -> None:
        """Give up the claim on one pair, or all claims of `owner`."""
        one = "" if name is None else " AND key = ? AND seed = ?"
        with self._writing() as database:
            database.execute(f"DELETE FROM claims WHERE owner = ?{one}", (str(owner), *(name or ())))

    def merge(self, files: Iterable[Path]) -> Merge:
        """Add the rows of text files; what is torn, unreadable or of another version is reported and left out."""
        added = known = 0
        differing, problems = [], []
        for file in files:
            rows, wrong = read_text(file)
            problems += wrong
            with self._writing() as database:
                for row in rows:
                    if _insert(database, row):
                        added += 1
                    elif apart := differences(_kept(database, row), row):
                        differing.append((row["key"], row["seed"], apart))
                    else:
                        known += 1
        return Merge(added, known, differing, problems)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of the block happens, or nothing of it."""
        with self._reading() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        # A connection a call: threads and processes share nothing, and wait for their turn.
        database = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
        try:
            _use_wal(database)
            database.execute("PRAGMA synchronous = FULL")
            yield database
        except sqlite3.OperationalError as error:  # a full disk, a lock held for too long
            raise sqlite3.OperationalError(f"{self.path}: {error}") from error
        finally:
            database.close()


def _use_wal(database: sqlite3.Connection) -> None:
    """Set WAL mode; while another process makes the same store, SQLite refuses at once instead of waiting."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
        time.sleep(0.01)


def rows_in(path: Path) -> list[dict[str, Any]]:
    """Return the rows of the store at a path; none where there is no file, and none is made."""
    return Store(path).rows() if path.exists() else []


def together_of(row: dict[str, Any]) -> int:
    """Return how many pairs shared the time of a row: each has that of all.

    Example:
        >>> together_of({"metrics": {"together": 12}}), together_of({"metrics": {}})
        (12, 1)
    """
    return int(row["metrics"].get("together", 1))


def _insert(database: sqlite3.Connection, row: dict[str, Any]) -> bool:
    values = (row["key"], row["seed"], row["kind"], compact_json(row))
    return database.execute("INSERT OR IGNORE INTO rows VALUES (?, ?, ?, ?)", values).rowcount == 1


def _kept(database: sqlite3.Connection, row: dict[str, Any]) -> Any:
    (body,) = database.execute("SELECT body FROM rows WHERE key = ? AND seed = ?", (row["key"], row["seed"])).fetchone()
    return json.loads(body)
