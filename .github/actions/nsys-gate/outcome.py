"""Should the step fail? Read from the JSON report of pytest-nsys, with nothing but Python's standard library.

check WORDS                  whether fail-on can be meant
verdict REPORT               the run in one word
apply WORDS EXIT REPORT      exit 0 where the step passes, else 1 with a line that says why
"""

import json
import sys

KNOWN = ("bad", "never", "inconclusive", "improved", "warned")
GREEN = ("passed", "improved", "inconclusive", "accepted")
PARDONED = {"failed", "accepted", "improved", "inconclusive", "incomparable", "no data"}
"""Verdicts that ``never`` lets pass: a verdict was reached. What cannot be judged at all is broken, not slow."""


def fail_on(text):
    """The words of the input. Exits where they cannot be meant."""
    words = text.replace(",", " ").split()
    unknown = [word for word in words if word not in KNOWN]
    if unknown or not words:
        sys.exit(f"fail-on: {unknown[0] if unknown else 'nothing'!r} is none of {', '.join(KNOWN)}")
    if "never" in words and len(words) > 1:
        sys.exit("fail-on: never stands alone")
    return words


def read(path):
    """The report, None where there is none that can be read."""
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        return report if report["format"] == 1 else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def problem(words, status, report):
    """Why the step fails; None where it passes."""
    if report is None:
        return f"pytest ended with exit status {status} and left no report"
    if report["mistakes"] or status not in ("0", "1"):
        return f"the gate is broken: {report['headline']}"
    assertions = [a for file in report["gate_files"] for a in file["assertions"]]
    if not assertions:
        return "nothing was judged"
    bad = [a for a in assertions if not a["good"]]
    if status == "0" and (bad or not report["good"] or report["verdict"] not in GREEN):
        return f"pytest ended with exit status 0, and the report says {report['verdict']}: {report['headline']}"
    if status == "1" and not bad:
        return f"pytest ended with exit status 1, and no assertion says why: {report['headline']}"
    if "never" in words:
        broken = [a["name"] for a in bad if a["state"] not in PARDONED]
        return f"{len(broken)} of {len(assertions)} assertions could not be judged" if broken else None
    if bad:
        return report["headline"]
    asked = [word for word in words if report["counts"].get(word)]
    return f"fail-on {', '.join(asked)}: {report['headline']}" if asked else None


def main(action, *arguments):
    if action == "check":
        fail_on(*arguments)
    elif action == "verdict":
        report = read(*arguments)
        if report is None:
            sys.exit(1)
        print(report["verdict"])
    elif action == "apply":
        words, status, path = arguments
        why = problem(fail_on(words), status, read(path))
        if why is not None:
            escaped = why.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
            print(f"::error title=nsys gate::{escaped}")
            sys.exit(1)
        print("nsys gate: the step passes")


if __name__ == "__main__":
    main(*sys.argv[1:])
