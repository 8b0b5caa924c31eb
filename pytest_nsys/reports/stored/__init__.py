"""How is stored data reported: a history, the baselines that a refresh changed, and the failures that it left?"""
