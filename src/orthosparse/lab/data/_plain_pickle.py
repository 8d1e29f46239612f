"""Reading pickles that hold nothing but containers, numbers, strings and arrays of bytes."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np


def _bytes_dtype(code: str, *flags: object) -> np.dtype[Any]:
    del flags  # how it is aligned and copied
    if code not in ("u1", "|u1"):
        raise pickle.UnpicklingError(f"an array of {code!r}, where only unsigned bytes are admitted")
    return np.dtype(np.uint8)


def _empty_array(*how: object) -> np.ndarray[Any, Any]:
    del how  # an array's pickle begins with an empty one; the shape and the bytes come with its state
    return np.ndarray((0,), np.uint8)


def _latin(text: str, encoding: str) -> bytes:
    del encoding  # Python 3 writes bytes as latin-1 text in old protocols
    return text.encode("latin-1")


# Numpy moved its core in 2.0; pickles name either place.
_ADMITTED: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("numpy", "ndarray"): "ndarray",  # only handed to _reconstruct
    ("numpy", "dtype"): _bytes_dtype,
    ("_codecs", "encode"): _latin,
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return a stand-in for what rebuilds an array; nothing is ever imported."""
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which plain data does not need")
        return _ADMITTED[module, name]


def load_plain(path: Path) -> object:
    """Return what the pickle holds.

    Only a fixed list of names can be looked up, so that a file made to run code when it is opened is refused.

    Raises:
        pickle.UnpicklingError: it holds anything else, or is cut short.
    """
    with path.open("rb") as file:
        try:
            return _PlainUnpickler(file, encoding="latin1").load()
        except pickle.UnpicklingError:
            raise
        except (EOFError, ValueError, TypeError, AttributeError, IndexError, KeyError, UnicodeDecodeError) as error:
            raise pickle.UnpicklingError(str(error) or type(error).__name__) from error
