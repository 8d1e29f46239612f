"""Masks that move while training: drop the smallest weights, grow new ones, every count kept."""

from orthosparse.dynamic.rewirer import Rewirer

__all__ = ["Rewirer"]
