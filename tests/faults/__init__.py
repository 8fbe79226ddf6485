"""Hostile files and bad days: fuzzed readers, killed commands, full disks, two at once, bombs; counted in a table.

``python tests/faults --help``, or ``make faults`` for all of it. What is quick enough is in ``test_*.py``.
"""
