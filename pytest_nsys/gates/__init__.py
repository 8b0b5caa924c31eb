"""Reads gate files and judges measured rows by their limits. Baselines are in ``stored``, verdicts in ``verdicts``."""
