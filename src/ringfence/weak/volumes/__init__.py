"""Medical volumes in and out, with their geometry."""
