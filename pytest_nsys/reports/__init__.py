"""Verdicts and rows out: text, Markdown, JSON, HTML. Nothing is decided here.

Its rooms import one way: stored, page, then session, views and screens, then drawings, words, tables.
"""
