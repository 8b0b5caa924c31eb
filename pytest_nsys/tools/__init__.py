"""Which other programs do we call, and how do we run in parallel?"""
