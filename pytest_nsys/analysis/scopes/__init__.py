"""Which part of the program launched each kernel: which stage, module, operator, range and line of source, and how long
did it take?
"""
