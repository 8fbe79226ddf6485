"""Whole runs: one model, or every method on one task."""
