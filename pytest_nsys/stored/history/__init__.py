"""Which runs were there in the past? A SQLite database that pytest writes, and that ``pytest-nsys history`` and limits
read.
"""
