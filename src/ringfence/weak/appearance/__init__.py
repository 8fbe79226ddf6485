"""What objects look like against what is around their boxes: brightness alone, and no network."""
