"""Checkpoints that are checked before they are gone on with, and runs that become longer."""
