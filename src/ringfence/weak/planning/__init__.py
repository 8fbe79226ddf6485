"""From a set's fingerprint to settings, each with its reason."""
