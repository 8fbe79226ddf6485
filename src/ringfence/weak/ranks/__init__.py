"""Several processes at once: who takes part, what each of them does, and how they meet."""
