"""Write A1.sqlite to A5.sqlite: five captures of one program."""

from dataclasses import replace
from pathlib import Path

from tests.support.samples.dualpipe import SAMPLE_SHAPE, write_dualpipe

for n in range(1, 6):  # another seed draws other lengths, as another run has
    write_dualpipe(Path(f"A{n}.sqlite"), replace(SAMPLE_SHAPE, seed=n))
