"""How is a trace captured?"""
