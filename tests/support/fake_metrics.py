"""A table of metrics like the registry's, for tests of gate files alone."""

from __future__ import annotations

from dataclasses import dataclass

RANK = ("rank",)
STAGES = ("rank", "stage")


@dataclass(frozen=True)
class FakeMetric:
    name: str
    unit: str
    better: str | None
    dimensions: tuple[str, ...]
    least: int | None = 0

    @property
    def greatest(self) -> int | None:
        return 1 if self.unit == "%" or self.name == "overlap_score" else None


METRICS = {
    metric.name: metric
    for metric in (
        FakeMetric("comm_ns", "ns", None, STAGES),
        FakeMetric("exposed_ns", "ns", "lower", STAGES),
        FakeMetric("overlap", "%", "higher", STAGES),
        FakeMetric("overlap_min", "%", None, STAGES),
        FakeMetric("overlap_max", "%", None, STAGES),
        FakeMetric("launches", "count", None, STAGES),
        FakeMetric("mean_kernel_ns", "ns", None, STAGES),
        FakeMetric("overlap_tax_ns", "ns", "lower", STAGES),
        FakeMetric("barrier_ns", "ns", "lower", RANK),
        FakeMetric("compute_ns", "ns", None, RANK),
        FakeMetric("wall_exposed_ns", "ns", "lower", RANK),
        FakeMetric("wall_overlap", "%", "higher", RANK),
        FakeMetric("busy_ns", "ns", None, RANK),
        FakeMetric("idle_ns", "ns", "lower", RANK),
        FakeMetric("window_ns", "ns", "lower", RANK),
        FakeMetric("anchors", "count", None, RANK),
        FakeMetric("syncs", "count", "lower", RANK),
        FakeMetric("window_typicality", "1", "lower", RANK),
        FakeMetric("overlap_score", "1", "higher", RANK),
        FakeMetric("gpu_gap_ns", "ns", "lower", RANK),
        FakeMetric("compute_streams", "count", None, RANK),
        FakeMetric("stream_compute_ns", "ns", None, ("rank", "device", "context", "stream")),
        FakeMetric("comm_streams", "count", None, ("rank", "purpose")),
        FakeMetric("period_ns", "ns", "lower", ("rank", "quantile")),
    )
}
