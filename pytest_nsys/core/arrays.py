"""Where does numpy come from, so that its threads do not spin? Every other module imports it from here.

The first import of numpy decides this for the whole process, and imports are sorted by module name.
"""

from __future__ import annotations

import os

# How long the threads of OpenBLAS spin before they sleep, as a power of two: at its import, by default, for 60 ms.
_SPIN_VARIABLE = "OPENBLAS_THREAD_TIMEOUT"

if _is_spin_unset := _SPIN_VARIABLE not in os.environ:
    os.environ[_SPIN_VARIABLE] = "20"
try:
    import numpy
    from numpy.typing import NDArray
finally:
    if _is_spin_unset:
        del os.environ[_SPIN_VARIABLE]

__all__ = ["NDArray", "numpy"]
