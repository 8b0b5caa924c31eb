"""How is a part of a run shown in full?"""
