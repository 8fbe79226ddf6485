"""Trained models at work: masks of new images."""
