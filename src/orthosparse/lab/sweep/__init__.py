"""Sweeps: pairs of an experiment and a seed, the engines that run them, and the store of their rows."""
