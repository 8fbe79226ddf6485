"""From a task and a method to a trained network."""
