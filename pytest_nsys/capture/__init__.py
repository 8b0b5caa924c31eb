"""How is a trace made?"""
