"""Where are the steps of a run whose convention nobody named: where a built-in convention marks them, or where kernels
repeat?
"""
