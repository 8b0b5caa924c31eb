"""What does a fact examine, and which facts apply to what a metric depends on?"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from pytest_nsys.analysis.fact_bounds import NO_BOUNDS, Bounds
from pytest_nsys.analysis.metrics.registry import Metric, MetricSource
from pytest_nsys.analysis.windows.run import Run, WindowGroup
from pytest_nsys.analysis.windows.window_selection import WindowSpec, marks_steps
from pytest_nsys.core.errors import NothingMeasured
from pytest_nsys.core.model import KernelsMode


class QualityContext(NamedTuple):
    """Holds what a metric is measured on, and says what it depends on.

    Its properties depend only on the metric, never on what happens to have been read.
    """

    run: Run
    spec: WindowSpec
    metric: Metric
    bounds: Bounds = NO_BOUNDS

    @property
    def group(self) -> WindowGroup:
        """The windows, which are picked only once. Raises NothingMeasured for a run without kernels."""
        return self.run.load_windows(self.spec)

    @property
    def launch_group(self) -> WindowGroup:
        """The windows whose launches count.

        For a metric of all of several steps this is the whole run, if launches make its steps and the trace holds all
        of it.
        """
        has_several_steps = any(len(track.anchors) > 1 for track in self.group.tracks.values())
        if (
            self.metric.reads_all_steps
            and (has_several_steps or self.spec.is_whole_run)
            and self._has_steps_by_launch()
        ):
            with suppress(NothingMeasured):  # of a cut
                return self.run.load_whole_run()
        return self.group

    def is_measured(self) -> bool:
        """Return True: every fact without another condition applies to any metric of a trace."""
        return True

    def counts_kernels(self) -> bool:
        """Return whether one kernel more or less changes the metric; the length of steps of launches changes, too."""
        return self.metric.reads_kernels or (self.metric.reads_all_steps and self._has_steps_by_launch())

    def _has_steps_by_launch(self) -> bool:
        # For the whole run the spec has no mode, so that of the convention counts.
        by_launch = self.spec.is_by_launch or (
            self.spec.is_whole_run and self.run.convention.kernels is KernelsMode.LAUNCHED
        )
        return by_launch and marks_steps(self.run.convention, self.spec)

    def needs_streams(self) -> bool:
        """Return whether it matters on which stream a kernel ran."""
        return self.metric.source not in (MetricSource.FAMILIES, MetricSource.GPU)

    def looks_up_stages(self) -> bool:
        """Return whether the stage of a kernel is looked up."""
        return "stage" in self.metric.launch_lookups and self.run.convention.stage is not None

    def looks_up_purposes(self) -> bool:
        """Return whether the purpose of a kernel is looked up."""
        return bool(self.metric.launch_lookups and self.run.convention.purposes)

    def looks_up_launches(self) -> bool:
        """Return whether stages or purposes are looked up at launches: of communication on its own streams at least."""
        looks_up_some = self.looks_up_purposes() and any(window.communication for window in self.group)
        return self.looks_up_stages() or looks_up_some

    def reads_launches(self) -> bool:
        """Return whether the times of kernel launches affect the metric."""
        launch_column = self.metric.launch_lookups or self.metric.median_window_metric
        return self.counts_kernels() and (self.spec.is_by_launch or bool(launch_column))

    def follows_launches(self) -> bool:
        """Return whether windows hold what their steps launched, for which every launch of the run is read."""
        is_by_launch = self.spec.is_by_launch or self.metric.reads_all_steps
        return self.counts_kernels() and is_by_launch and self._has_steps_by_launch()

    def reads_sizes(self) -> bool:
        """Return whether the metric depends on how many bytes a collective moves."""
        return self.metric.reads_sizes

    def needs_groups(self) -> bool:
        """Return whether the process group of a collective, or its size, affects the metric."""
        return "group" in self.metric.dimensions
