"""What does a terminal say at the end of a session? Every red once, in the summary of the gates, and nothing beside it.

pytest has a section for each failed item, and a line in its short summary: of many items that one thing made red these
say the same. Unless ``-v`` asks for all, the sections are left out and the lines are the first few; so are warnings,
which the summary of the gates tells in a line. The reports keep the whole text, which JUnit and editors show.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pytest_nsys.core.file_names import GATE_SUFFIX
from pytest_nsys.outcomes import NsysWarning
from pytest_nsys.plugin.saying import say
from pytest_nsys.plugin.session import session_of
from pytest_nsys.reports.session.headline import of_session
from pytest_nsys.reports.session.story_lines import root_lines, story_lines, wrapped
from pytest_nsys.reports.session.summary import LOG_WIDTH, count_line, summary_lines

if TYPE_CHECKING:
    from pytest_nsys.plugin.reporting import Reporting

TOLD_BY_US = ("failed", "error")
"""pytest's categories whose reports have a section and a line each."""

WARNINGS = "warnings"
SHOWN_LINES = 2  # of pytest's short summary, for each category
PYTESTS_OWN = "fE"
"""What pytest lists in its short summary where nobody says what."""


@contextmanager
def folded(reporter: Any, config: pytest.Config) -> Generator[dict[str, list[Any]]]:
    """Take the reports of gate files out of pytest's sections while it says all that it says at the end.

    Yields the categories that they were taken from, as pytest counts them.
    """
    stats = reporter.stats
    is_folded = config.get_verbosity() <= 0 and config.getoption("tbstyle") != "line"  # which is short already
    all_reports = {name: stats[name] for name in TOLD_BY_US if name in stats} if is_folded else {}
    stats |= {name: [report for report in reports if not _is_ours(report)] for name, reports in all_reports.items()}
    own_warnings = (
        [warning for warning in stats.get(WARNINGS, ()) if _is_told(warning)]
        if config.get_verbosity() in (-1, 0)
        else []
    )
    if own_warnings:
        stats[WARNINGS] = [warning for warning in stats[WARNINGS] if warning not in own_warnings]
    try:
        yield all_reports
    finally:
        if own_warnings:
            stats[WARNINGS] += own_warnings  # pytest counts them below
        hidden_count = sum(len(reports) - len(stats[name]) for name, reports in all_reports.items())
        stats |= all_reports
        if hidden_count and not config.getoption("no_summary", default=False):
            say(reporter, f"… {hidden_count} more (-v shows them)")


def _is_ours(report: Any) -> bool:
    """Whether the summary of the gates tells the report. What an item printed only pytest shows."""
    return (hasattr(report, "nsys") or hasattr(report, "nsys_merge_base")) and not report.sections


def _is_told(warning: Any) -> bool:
    """Whether the warning is a verdict's, which the summary of the gates tells."""
    return f"{NsysWarning.__name__}: " in warning.message and GATE_SUFFIX in (warning.nodeid or "").partition("::")[0]


def tell(reporter: Any, exit_status: int, config: pytest.Config, whole: dict[str, list[Any]]) -> None:
    """Print the section of the gates, and in one sentence what happened."""
    stats, verbosity = reporter.stats, config.get_verbosity()
    session = reporting_of(stats, config).gather(exit_status)
    width = config.get_terminal_writer().fullwidth if reporter.isatty else None
    if verbosity < -1:
        lines = [count_line(session.records)] if session.records else []
    elif verbosity > 0:
        lines = [*summary_lines(session.records, verbose=True, width=width), *root_lines(session.story)]
    else:
        lines = story_lines(session, width or LOG_WIDTH, explained=config.getoption("tbstyle") != "no")
    if session.merge_base is not None:
        told_texts = {record.explained for record in session.bad}
        lines = [*session.merge_base.lines(told_texts), *lines]
    lines = [*lines, *_below(stats, exit_status, config)]
    if (session.records or session.mistakes) and not session.plainly_good:
        lines += wrapped(of_session(session), width or LOG_WIDTH)
    if lines:
        reporter.section("nsys gate")
        for line in lines:
            say(reporter, line)
    _fold_lines(reporter, config, whole)


def _below(stats: dict[str, list[Any]], exit_status: int, config: pytest.Config) -> Iterator[str]:
    """Yield the lines that say what the session did to baselines, and what had no trace."""
    session = session_of(config)
    if config.getoption("nsys_update_baselines") and exit_status != pytest.ExitCode.USAGE_ERROR:  # which pytest tells
        from pytest_nsys.plugin.refreshing import refreshing_of

        yield from refreshing_of(session).lines(folded=config.get_verbosity() <= 0)
    if not_run := [report for reports in stats.values() for report in reports if hasattr(report, "nsys_not_run")]:
        from pytest_nsys.plugin.not_run import count_once, not_run_lines

        yield from not_run_lines(not_run)
        count_once(stats, config)


def _fold_lines(reporter: Any, config: pytest.Config, whole: dict[str, list[Any]]) -> None:
    """Leave the first few lines in the short summary, unless somebody says what it lists."""
    for name, reports in whole.items() if config.getoption("reportchars") == PYTESTS_OWN else ():
        gate_reports = [report for report in reports if _is_ours(report)]
        if len(gate_reports) > SHOWN_LINES + 1:
            hidden_ids = {id(report) for report in gate_reports[SHOWN_LINES:]}
            reporter.stats[name] = [report for report in reports if id(report) not in hidden_ids]


def reporting_of(stats: dict[str, list[Any]], config: pytest.Config) -> Reporting:
    """Return what gathered the reports of the session; in a session that writes none, one made of what pytest kept."""
    from pytest_nsys.plugin.reporting import NAME, Reporting

    if isinstance(reporter := config.pluginmanager.get_plugin(NAME), Reporting):
        return reporter
    reporter = Reporting(config, ())
    for report in (report for reports in stats.values() for report in reports):
        if isinstance(report, pytest.CollectReport):
            reporter.pytest_collectreport(report)
        elif isinstance(report, pytest.TestReport):
            reporter.pytest_runtest_logreport(report)
    return reporter
