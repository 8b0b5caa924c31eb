"""How does one run read on a page of text: throughput, overlap, network load, and what its traffic consists of?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.collectives import Found, Labels, Transfers, shares, sized, transfers
from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.analysis.run import RunWindow
from pytest_nsys.analysis.throughput import check_world, shards_of, world_of
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.exact import exact, mean, median
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.units import BARE, RATIO, SIZE, TIME
from pytest_nsys.core.words import counted, printable
from pytest_nsys.core.workload import Parallel
from pytest_nsys.reports.kernel_report import CollectiveReport
from pytest_nsys.reports.tables import aligned

ABSENT = "-"
UNKNOWN_TIME = "time-unknown"
"""Stands in the name of a report for a time that the traces do not say."""

UNKNOWN_MODEL = "model-unknown"
_UNFIT = re.compile(r"[^A-Za-z0-9.+-]+")


@dataclass(frozen=True)
class RunReport:
    """One run under one window spec. ``name`` is what its folder is called."""

    name: str
    captures: Captures
    spec: WindowSpec

    @cached_property
    def window(self) -> RunWindow:
        (found,) = self.captures.runs[0].measured(self.spec).together()
        return found

    @property
    def _parallel(self) -> Parallel:
        return self.window.run.workload.parallel or Parallel()

    @cached_property
    def file_stem(self) -> str:
        """``20240522T001522Z_llama3_8B_dp1x8_tp1_gpu8``. Raises NoRows where the degrees do not fit the world."""
        began, parallel = self.captures.began, self._parallel
        check_world(self.window, parallel)
        time = UNKNOWN_TIME if began is None else f"{began:%Y%m%dT%H%M%SZ}"
        model = _UNFIT.sub("_", self.window.run.workload.model or UNKNOWN_MODEL)[:100]
        degrees = f"dp{parallel.replicate}x{shards_of(self.window, parallel)}_tp{parallel.tensor}"
        return f"{time}_{model}_{degrees}_gpu{world_of(self.window)}"

    def text(self) -> str:
        """The report. The same traces and configuration give the same bytes."""
        stragglers = [*self._collectives.lines()]
        untimed = ["the time: no trace says when it was taken"] if self.captures.began is None else []
        parts = (
            ("", self._head()),
            ("Throughput", self._throughput()),
            ("Overlap: share of the communication during which compute runs", self._overlap()),
            ("Network load: bandwidth of the links (busbw) in GB/s", self._load()),
            ("Traffic distribution", self._traffic()),
            ("Stragglers", [*stragglers, *(self._collectives.agreeing() if stragglers else ())]),
            ("Not known", [f"- {line}" for line in (*untimed, *self._collectives.unsaid())]),
        )
        blocks = ["\n".join([*([title, "-" * len(title)] if title else []), *lines]) for title, lines in parts if lines]
        return "\n\n".join(blocks) + "\n"

    @cached_property
    def _collectives(self) -> CollectiveReport:
        return CollectiveReport(self.window, frozenset(self.window.by_rank))

    def _head(self) -> list[str]:
        parallel, run = self._parallel, self.window.run
        rest = f"pp {parallel.pipeline}, cp {parallel.context}, ep {parallel.expert}"
        degrees = f"dp {parallel.replicate}x{shards_of(self.window, parallel)}, tp {parallel.tensor}, {rest}"
        gpus = f"{world_of(self.window)}, of which {len(self.window.by_rank)} are in {counted(len(run.traces), 'file')}"
        start = self.captures.began
        began = "not known" if start is None else f"{start:%Y-%m-%d %H:%M:%S} UTC"
        return aligned(
            [
                ("run", printable(self.name)),
                ("began", began),
                ("model", printable(run.workload.model or "not stated")),
                ("parallel", degrees),
                ("GPUs", gpus),
                ("looked at", str(self.spec)),
                *(("in doubt", note.text) for note in self.captures.notes_of(self.spec, "unknown_communication")),
            ]
        )

    def _throughput(self) -> list[str]:
        lines = []
        for name in ("step_time_ns", "samples_per_s", "tokens_per_s"):
            metric = METRICS[name]
            measured = self.captures.rows(metric, self.spec)
            if measured.rows:
                lines.append((name, format_value(measured.rows[0].value, str(metric.unit))))
            else:
                lines.append((name, f"not known: {measured.without}"))
            if name == "tokens_per_s" and measured.rows:
                each = Fraction(measured.rows[0].value) / world_of(self.window)
                lines.append(("per GPU", format_value(exact(each), str(metric.unit))))
        return aligned(lines)

    def _overlap(self) -> list[str]:
        overlap = self._by_rank("wall_overlap_all")
        if not overlap:
            return ["nothing communicates"]
        exposed = self._by_rank("wall_exposed_all_ns")
        least, most = min(overlap, key=lambda n: (overlap[n], n)), max(overlap, key=lambda n: (overlap[n], -n))
        head = aligned(
            [
                ("average", _percent(mean([*overlap.values()]))),
                ("minimum", f"{_percent(overlap[least])} (rank {least})"),
                ("maximum", f"{_percent(overlap[most])} (rank {most})"),
            ]
        )
        rows = [(str(n), _percent(value), format_value(exposed[n], TIME)) for n, value in overlap.items()]
        return [*head, "", *aligned([("rank", "overlap", "exposed"), *rows])]

    def _by_rank(self, metric: str) -> dict[int, Value]:
        rows = self.captures.rows(METRICS[metric], self.spec).rows
        return {int(row.labels[0]): row.value for row in rows}

    @cached_property
    def _all(self) -> Found:
        found: dict[Labels, Transfers] = {}
        for window in self.window.by_rank.values():
            for labels, own in transfers(window).items():
                found[labels] = found.get(labels, Transfers()).and_(own)
        return dict(sorted(found.items()))

    def _load(self) -> list[str]:
        peak = self.window.run.workload.peak_gb_per_s
        head = ("group", "collective", "kernels", "time", "average", "median", "minimum", "maximum")
        rows: list[Sequence[str]] = [(*head, *(("of peak",) if peak is not None else ()))]
        for (group, kind), own in self._all.items():
            speeds: list[Value] = [speed for t in own.recorded if (speed := t.bus_gb_per_s) is not None]
            time = format_value(own.in_window_ns, TIME)
            cells = [printable(group, 60), kind, str(own.kernels), time]
            cells += [format_value(take(speeds), BARE) if speeds else ABSENT for take in (mean, median, min, max)]
            if peak is not None:
                cells.append(_percent(exact(Fraction(median(speeds)) / peak)) if speeds else ABSENT)
            rows.append(cells)
        return aligned(rows) if len(rows) > 1 else ["nothing communicates"]

    def _traffic(self) -> list[str]:
        known = sized(self._all)
        total = sum(known.values())
        if not total:
            return []
        share_of = shares(self._all)
        rows = [
            (*(printable(group, 60), kind, format_value(size, SIZE)), _percent(share_of.get((group, kind))))
            for (group, kind), size in sorted(known.items(), key=lambda item: (-item[1], item[0]))
        ]
        last = ("all" if share_of else "all that are known", "", format_value(total, SIZE), "")
        return aligned([("group", "collective", "bytes", "share"), *rows, last])


def _percent(value: Value | None) -> str:
    return ABSENT if value is None else format_value(value, RATIO)
