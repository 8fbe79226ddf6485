"""Whole runs: one model (train), or every method on one task (compare); their settings and presets."""
