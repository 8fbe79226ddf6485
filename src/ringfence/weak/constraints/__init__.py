"""What can be asked of a region: one kind of constraint a file, each found by its file's name.

Beside the kinds: constraint (what a kind is), case (what it is read from), motion (how images move), boxes (what
kinds that read boxes share), registry (all kinds by name, and users' own).
"""
