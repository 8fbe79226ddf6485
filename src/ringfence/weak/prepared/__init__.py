"""The set to train on: its format, its preprocessing, and building it."""
