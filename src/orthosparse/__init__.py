"""Sparse training that starts exactly orthogonal."""
