"""Where are the steps of a run that names no convention: where a built-in one has them, or where kernels repeat?"""
