"""How is what is stored reported: a history, what a refresh changed in baselines, and what it left red?"""
