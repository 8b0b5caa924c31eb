"""The runs of the past, in a SQLite database: written by pytest, read by ``pytest-nsys history`` and by limits."""
