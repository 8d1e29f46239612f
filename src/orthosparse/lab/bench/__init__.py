"""Measurements of speed, side by side in one run."""
