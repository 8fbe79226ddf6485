"""Networks by name, built and checked; and weights in files that no code comes from."""
