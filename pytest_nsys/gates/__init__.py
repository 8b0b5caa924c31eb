"""Decides what must stay true of a run: gate files, limits, baselines and verdicts."""
