"""Who works on a pair: a process of a machine, and whether it still lives."""

import os
import secrets
import socket
from dataclasses import dataclass


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
        """Return whether the process is known to have ended: it was on this machine, and its number is free."""
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
