"""How does the package call other programs (git, nsys, nvidia-smi), write files, and run in parallel?"""
