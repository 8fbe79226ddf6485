"""One training of several ranks: batch norm, losses and DDP over all of them."""
