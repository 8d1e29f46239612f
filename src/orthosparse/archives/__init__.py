"""Small files of sparse models: the active weights, and a code of which ones they are."""

from orthosparse.archives.archive import load_compact, save_compact

__all__ = ["load_compact", "save_compact"]
