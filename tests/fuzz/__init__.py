"""Inputs that are broken in ways nobody thought of: seeded, reproducible one by one, judged by what they really hold.

``python -m tests.fuzz --seed 1 --inputs 500`` runs some of each kind; what it prints of a failure repeats it alone.
"""
