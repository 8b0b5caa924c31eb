"""How much of what should be in a trace is in it? Each doubt about a run is a fact, measured and worded in one place.

A fact is an error, a doubt or a note of whatever depends on it. What prints it is told of all alike: ``check``, the
first screen, a verdict, JSON and the page.
"""
