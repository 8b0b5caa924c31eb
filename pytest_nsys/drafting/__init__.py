"""How is a first gate file drafted from a trace? Its convention, window, assertions, limits, and why."""
