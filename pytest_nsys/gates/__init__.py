"""Gate files, limits, baselines, verdicts: what must stay true, and how that is decided."""
