"""Which ranks does a run have, which span of each is a window, and which kernels belong to it?"""
