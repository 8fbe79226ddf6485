"""What can be asked of a region: one kind a file."""
