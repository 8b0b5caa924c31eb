"""What does the terminal show at the end of a session? Every failure once, in the summary of the gates.

pytest shows a section and a short summary line for each failed item, which repeat each other if one cause made many
items fail. Without ``-v``, the sections are left out and only the first few lines are kept. Warnings are left out too;
the summary of the gates shows them. The reports keep the full text for JUnit and editors.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pytest_nsys.core.file_names import GATE_SUFFIX
from pytest_nsys.outcomes import NsysWarning
from pytest_nsys.plugin.session import get_nsys_session
from pytest_nsys.plugin.terminal_text import print_coloured_lines, print_terminal_line
from pytest_nsys.reports.session.headline import format_headline
from pytest_nsys.reports.session.story_lines import render_root_lines, render_story_lines, wrap_line
from pytest_nsys.reports.session.summary import LOG_WIDTH, format_state_counts, render_terminal_summary

if TYPE_CHECKING:
    from pytest_nsys.plugin.reporting import SessionReporter

OWN_CATEGORIES = ("failed", "error")
"""pytest's categories whose reports have a section and a short summary line."""

WARNINGS = "warnings"
MOST_SHORT_LINES = 2  # in pytest's short summary, per category
DEFAULT_REPORT_CHARS = "fE"
"""What pytest lists in its short summary by default."""


@contextmanager
def fold_sections(reporter: Any, config: pytest.Config) -> Generator[dict[str, list[Any]]]:
    """Remove the reports of gate files from pytest's sections while it prints its summary.

    Yields all reports by pytest's categories.
    """
    stats = reporter.stats
    is_folded = config.get_verbosity() <= 0 and config.getoption("tbstyle") != "line"  # already short
    all_reports = {name: stats[name] for name in OWN_CATEGORIES if name in stats} if is_folded else {}
    stats |= {
        name: [report for report in reports if not _is_gate_report(report)] for name, reports in all_reports.items()
    }
    own_warnings = (
        [warning for warning in stats.get(WARNINGS, ()) if _is_verdict_warning(warning)]
        if config.get_verbosity() in (-1, 0)
        else []
    )
    if own_warnings:
        stats[WARNINGS] = [warning for warning in stats[WARNINGS] if warning not in own_warnings]
    try:
        yield all_reports
    finally:
        if own_warnings:
            stats[WARNINGS] += own_warnings  # pytest counts them later
        hidden_count = sum(len(reports) - len(stats[name]) for name, reports in all_reports.items())
        stats |= all_reports
        if hidden_count and not config.getoption("no_summary", default=False):
            print_terminal_line(reporter, f"… {hidden_count} more (-v shows them)")


def _is_gate_report(report: Any) -> bool:
    """Whether the summary of the gates shows the report. Output of an item is only shown by pytest."""
    return (hasattr(report, "nsys") or hasattr(report, "nsys_merge_base")) and not report.sections


def _is_verdict_warning(warning: Any) -> bool:
    """Whether the warning is a verdict's, which the summary of the gates shows."""
    return f"{NsysWarning.__name__}: " in warning.message and GATE_SUFFIX in (warning.nodeid or "").partition("::")[0]


def print_gate_summary(
    reporter: Any, exit_status: int, config: pytest.Config, all_reports: dict[str, list[Any]]
) -> None:
    """Print the section of the gates, with the headline."""
    stats, verbosity = reporter.stats, config.get_verbosity()
    session = find_reporter(stats, config).gather_session(exit_status)
    width = config.get_terminal_writer().fullwidth if reporter.isatty else None
    if verbosity < -1:
        lines = [format_state_counts(session.records)] if session.records else []
    elif verbosity > 0:
        lines = [
            *render_terminal_summary(session.records, verbose=True, width=width),
            *render_root_lines(session.story),
        ]
    else:
        lines = render_story_lines(session, width or LOG_WIDTH, with_explanation=config.getoption("tbstyle") != "no")
    if session.merge_base is not None:
        told_texts = {record.full_explanation for record in session.bad}
        lines = [*session.merge_base.render_lines(told_texts), *lines]
    lines = [*lines, *_list_closing_lines(stats, exit_status, config)]
    if (session.records or session.mistakes) and not session.has_only_passed:
        lines += wrap_line(format_headline(session), width or LOG_WIDTH)
    if lines:
        reporter.section("nsys gate")
        print_coloured_lines(reporter, lines)
    _fold_lines(reporter, config, all_reports)


def _list_closing_lines(stats: dict[str, list[Any]], exit_status: int, config: pytest.Config) -> Iterator[str]:
    """Yield the lines on the baselines that the session wrote, and on what had no trace."""
    session = get_nsys_session(config)
    if config.getoption("nsys_update_baselines") and exit_status != pytest.ExitCode.USAGE_ERROR:  # pytest reports it
        from pytest_nsys.plugin.baseline_refresh import get_session_refresh

        yield from get_session_refresh(session).render_lines(only_first=config.get_verbosity() <= 0)
    if not_run := [report for reports in stats.values() for report in reports if hasattr(report, "nsys_not_run")]:
        from pytest_nsys.plugin.not_run import count_once, render_not_run_lines

        yield from render_not_run_lines(not_run)
        count_once(stats, config)


def _fold_lines(reporter: Any, config: pytest.Config, all_reports: dict[str, list[Any]]) -> None:
    """Keep the first few lines of the short summary, unless ``-r`` selects its contents."""
    for name, reports in all_reports.items() if config.getoption("reportchars") == DEFAULT_REPORT_CHARS else ():
        gate_reports = [report for report in reports if _is_gate_report(report)]
        if len(gate_reports) > MOST_SHORT_LINES + 1:
            hidden_ids = {id(report) for report in gate_reports[MOST_SHORT_LINES:]}
            reporter.stats[name] = [report for report in reports if id(report) not in hidden_ids]


def find_reporter(stats: dict[str, list[Any]], config: pytest.Config) -> SessionReporter:
    """Return the session's reporter; if the session writes no reports, a new one filled from pytest's reports."""
    from pytest_nsys.plugin.reporting import REPORTING_PLUGIN, SessionReporter

    if isinstance(reporter := config.pluginmanager.get_plugin(REPORTING_PLUGIN), SessionReporter):
        return reporter
    reporter = SessionReporter(config, ())
    for report in (report for reports in stats.values() for report in reports):
        if isinstance(report, pytest.CollectReport):
            reporter.pytest_collectreport(report)
        elif isinstance(report, pytest.TestReport):
            reporter.pytest_runtest_logreport(report)
    return reporter
