"""How complete and consistent is a trace? Each doubt about a run is a fact, measured and worded in one place.

A fact is an error, a doubt or a note for whatever depends on it. ``check``, the first screen, a verdict, JSON and the
page all show the same facts.
"""
