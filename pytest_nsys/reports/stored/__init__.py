"""How is told what is stored: a history, what a refresh changed in baselines, and what it left red?"""
