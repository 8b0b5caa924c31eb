"""How does a whole session of assertions read in each output?"""
