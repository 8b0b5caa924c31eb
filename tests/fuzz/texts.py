"""Damage of text that has a structure: JSON whose members hold what they must not, gate files, sentences."""

import json
import re
from random import Random

from tests.fuzz import odd

_MARK = "@@odd@@"


def broken_json(random: Random, text: str) -> bytes:
    """JSON with another value somewhere, a member less, an element twice; or broken bytes."""
    if random.random() < 0.35:
        return odd.broken_bytes(random, text.encode())
    root = json.loads(text)
    for _ in range(random.choice((1, 1, 1, 3))):
        _change(random, root)
    first, *rest = json.dumps(root, indent=1).split(f'"{_MARK}"')
    return (first + "".join(random.choice(odd.JSON_TEXTS) + part for part in rest)).encode()


def _change(random: Random, root: object) -> None:
    """Walk down to a random place, and change what is there."""
    node = root
    while isinstance(node, dict | list) and node:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = random.choice(keys)
        inner = node[key]
        if isinstance(inner, dict | list) and inner and random.random() < 0.9:
            node = inner
            continue
        if random.random() < 0.75:
            node[key] = _MARK
        elif random.random() < 0.5 or isinstance(node, dict):
            del node[key]
        else:
            node.insert(random.randrange(len(node)), inner)
        return


WORDS = (
    *("overlap", "exposed_ns", "of", "rank", "stage", "stage2_f", "no", "mixed", "comm", "streams", "kernels", "new"),
    *(">=", "<=", "==", "<", "at", "most", "least", "below", "above", "baseline", "plus", "minus", "tolerance", "%"),
    *("60%", "1s", "200us", "-1ns", "1e9", "1e999999999", "5", "0", "1/0", "NaN", "median", "p90", "mean", "across"),
    *("pp", "over", "steps", "history", "last", "runs", "main", "branch"),
    *("*", "stage*", "[", "]", "(", "::", "\u00b5s"),
    *("balance", "sequence", "family_ns", "gemm", "for", "any", "each", "kernel", "AllReduce", "busbw", "150GB/s", "+"),
    *("% of step", "of step", "throughput", "tokens/s", "step time", "statistic", "idle"),
)
SCALARS = (
    *("null", "~", "yes", "010", "0x10", "1e999", ".inf", ".nan", "-1", "''", '""', "'*'", "[]", "{}", "[1, 2]"),
    *("{a: b}", "&a x", "*a", "!!python/name:os.system", "!!binary aGk=", "2026-01-01", "|"),
    *(">", "? x", "'%'", "5%", "1h"),
    *("\U0001f600", "\u202e", "'\\x00'", '"\\ud800"', "(?P<stage>(a+)+)$", "(?P<stage>", "'('", "x" * 3000, "9" * 400),
)


def broken_sentence(random: Random, sentence: str) -> str:
    """Words of a sentence that are others, elsewhere, or too many."""
    words = sentence.split() if random.random() < 0.8 else []
    for _ in range(random.choice((1, 2, 3, 8))):
        at = random.randrange(len(words) + 1)
        if random.random() < 0.3 and at < len(words):
            del words[at]
        else:
            words[at : at + random.choice((0, 1))] = [random.choice(WORDS)]
    return " ".join(words)


def broken_gate(random: Random, text: str) -> bytes:
    """A gate file with lines and scalars that are others, elsewhere, or twice; or broken bytes."""
    if random.random() < 0.2:
        return odd.broken_bytes(random, text.encode())
    lines = text.split("\n")
    for _ in range(random.choice((1, 1, 2, 4))):
        at, other = random.randrange(len(lines)), random.randrange(len(lines))
        match random.randrange(6):
            case 0:
                del lines[at]
                lines = lines or [""]
            case 1:
                lines.insert(other, lines[at])
            case 2:
                lines[at] = random.choice(("  ", "    ", "- ", "\t")) + lines[at]
            case 3:
                lines[at] = re.sub(r"^(\s*(?:- )?)[\w.]+:", rf"\1{random.choice(WORDS[:20])}:", lines[at])
            case _:
                lines[at] = re.sub(r"(: |- ).*", lambda m: m[1] + random.choice(SCALARS), lines[at], count=1)
    return "\n".join(lines).encode("utf-8", "surrogatepass")
