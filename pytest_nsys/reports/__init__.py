"""Writes verdicts and rows as text, Markdown, JSON and HTML. Nothing is decided here.

Its packages import in one direction: stored and page import session, views and screens, which import drawings, words
and tables.
"""
