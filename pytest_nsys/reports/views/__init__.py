"""Which views show one part of a run in full, and what is each made of?"""
