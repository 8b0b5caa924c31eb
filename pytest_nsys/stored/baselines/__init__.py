"""The baselines of a gate file, as they lie in the repository."""
