"""Damage and malice, by the structure of what is damaged: bytes, trees (JSON, YAML), lines, headers, zips."""
