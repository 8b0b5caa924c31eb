"""What is in a run, and what is worth a look first?"""
