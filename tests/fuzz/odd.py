"""What does not belong where it stands: values of every type that SQLite and JSON know, and damaged bytes and text."""

import math
from random import Random
from typing import Any

VALUES: tuple[Any, ...] = (
    *(None, "abc", "", "12", " ", "1e999", "\u00e9" * 40, b"", b"\xff\xfe", b"forward chunk 2", 1.5, -0.0, 1e300),
    *(math.inf, -math.inf, 2**63 - 1, -(2**63), 2**31, -1, 0, 1),
)
JSON_TEXTS = (
    *("null", "true", '"abc"', '""', '"12"', '"1e999"', "[]", "{}", "[[1]]", '{"a": 1}', "1e999", "-1e999", "NaN"),
    *("-1", "0", "1.5", "9" * 30, "-" + "9" * 400, "1e-400", '"\\ud800"', '"1/0"', '"0/1"', "Infinity", "123456789"),
)


def flipped(random: Random, content: bytes) -> bytes:
    """A few bytes are others."""
    changed = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 8, 64))):
        if changed:
            changed[random.randrange(len(changed))] = random.choice((0, 0xFF, random.randrange(256)))
    return bytes(changed)


def cut_short(random: Random, content: bytes) -> bytes:
    """The end is gone."""
    return content[: random.randrange(len(content) + 1)]


def repeated(random: Random, content: bytes) -> bytes:
    """A part stands elsewhere, once more, or not at all."""
    at, to = random.randrange(len(content) + 1), random.randrange(len(content) + 1)
    part = content[at : at + random.choice((1, 10, 100, 1000))]
    rest = content if random.random() < 0.5 else content[:at] + content[at + len(part) :]
    return rest[:to] + part * random.choice((0, 1, 2)) + rest[to:]


def pages_mixed(random: Random, content: bytes, size: int = 4096) -> bytes:
    """Two pages have changed places, or one stands for both, or is empty."""
    pages = [content[at : at + size] for at in range(0, len(content), size)]
    one, other = random.randrange(len(pages)), random.randrange(len(pages))
    pages[one], pages[other] = random.choice(
        ((pages[other], pages[one]), (pages[one], pages[one]), (pages[one], bytes(len(pages[other]))))
    )
    return b"".join(pages)


def broken_bytes(random: Random, content: bytes) -> bytes:
    """Damage that knows nothing of the format."""
    damage = random.choice((flipped, flipped, cut_short, repeated))
    return damage(random, content)
