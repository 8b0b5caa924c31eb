"""The reports of a pytest session."""
