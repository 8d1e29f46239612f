"""Inspection: what a scheme and a distribution would make of a model, measured before anything is trained."""
