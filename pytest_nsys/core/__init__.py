"""What are the nouns that all share, and the arithmetic on them?"""
