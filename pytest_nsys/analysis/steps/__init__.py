"""Where are the steps of a run that names no convention? Where a built-in one has them, or where kernels repeat."""
