"""Which types do all packages share, and which arithmetic do they need?"""
