"""Which views show one part of a run in full, and which tables and summaries does each have?"""
