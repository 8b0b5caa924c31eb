"""What is in a run, at a glance? The figures of the first screen, and what to look at first."""
