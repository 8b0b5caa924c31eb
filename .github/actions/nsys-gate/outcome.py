"""Should the step fail? Read from the JSON report of pytest-nsys, with nothing but Python's standard library.

verdict REPORT         the run in one word
apply EXIT REPORT      exit 0 where the step passes, else 1 with a line that says why
"""

import json
import sys

GREEN = ("passed", "improved", "inconclusive", "accepted")


def read(path):
    """The report, None where there is none that can be read."""
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        return report if report["format"] == 1 else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def problem(status, report):
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
    return report["headline"] if bad else None


def main(action, *arguments):
    if action == "verdict":
        report = read(*arguments)
        if report is None:
            sys.exit(1)
        print(report["verdict"])
    elif action == "apply":
        status, path = arguments
        why = problem(status, read(path))
        if why is not None:
            escaped = why.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
            print(f"::error title=nsys gate::{escaped}")
            sys.exit(1)
        print("nsys gate: the step passes")


if __name__ == "__main__":
    main(*sys.argv[1:])
