"""Who are the ranks of a run, which span of each is a window, and what ran there, under which circumstances?"""
