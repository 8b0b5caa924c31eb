"""What are the baselines of a gate file, as files in the repository?"""
