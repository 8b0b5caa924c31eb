"""What does a run, or a gate file, say on one screen?"""
