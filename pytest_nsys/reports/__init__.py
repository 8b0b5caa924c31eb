"""Verdicts and rows out: text, Markdown, JSON, HTML. Nothing is decided here."""
