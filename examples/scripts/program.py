"""Write a training step of a model of three blocks as torch.profiler records it: good.json, and slow.json.

In slow.json the attention of the second block takes a fifth longer, backward alone.
"""

from pathlib import Path

from pytest_nsys.core.scopes import Direction
from tests.support.scope_programs import write_torch

if __name__ == "__main__":
    write_torch(Path("good.json"))
    write_torch(Path("slow.json"), {(1, "attn", Direction.BACKWARD): 1.2})
