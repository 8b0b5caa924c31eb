"""Rows, a gate and what is stored: a verdict."""
