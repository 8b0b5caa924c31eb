"""What was traced, with which profiler, on which machine, and which of its windows are examined?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run_conditions import format_profiler_version
from pytest_nsys.analysis.windows.window_selection import WindowSpec, count_absent_ranks, find_anchor
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, PART_ANCHORS, Anchor, Convention
from pytest_nsys.core.model import KernelsMode, Span
from pytest_nsys.traces.trace_files import describe_format

FRAMEWORKS = (
    ("SGLang", ("*sgl_*", "*sglang*")),
    ("vLLM", ("*vllm::*",)),
    ("TensorRT-LLM", ("*tensorrt_llm::*",)),
    ("PyTorch", ("*at::native::*", "*N2at6native*", "triton_*_fused_*", "*c10::*")),
    ("JAX", ("loop_*_fusion*", "input_*_fusion*", "gemm_fusion_*")),
)
"""The framework that kernel names imply: the first one with a glob that matches a name."""

STEP_ANCHORS = {convention.anchor for convention in BUILT_IN_CONVENTIONS.values()} - {*PART_ANCHORS}

FRAMEWORKS_BY_PROFILER = {"torch.profiler": "PyTorch", "JAX": "JAX"}
"""The framework that a profiler is a part of."""


@dataclass(frozen=True, slots=True)
class WindowSelection:
    """Describes how the windows were found."""

    convention: str
    anchor: Anchor | None  # what begins the steps; None if there are none
    window: str
    span: Span
    kernels: KernelsMode
    index: int | None  # the window's index; None if it is no anchor, or several
    anchor_count: int  # of the first rank
    is_part_of_step: bool  # a step has several anchors
    is_whole_run: bool
    measured_unit: str  # what is measured, in one word
    is_stated_span: bool = False  # the window is a span of time that the user gave
    anchor_name: str | None = None  # of the window's anchor on the first rank
    step_kind: str | None = None  # the kind of the examined steps, if steps have kinds

    @property
    def window_option(self) -> str | None:
        """The ``--window`` argument that selects the steps of the kind; None if steps have no kinds."""
        return None if self.step_kind is None else WindowSpec(self.window, kind=self.step_kind).option_text

    @property
    def numbered_window_option(self) -> str:
        """The ``--window`` argument that selects the window."""
        window = self.window if self.index is None else str(self.index)
        return window if self.step_kind is None else f"'{window} {self.step_kind}'"


@dataclass(frozen=True, slots=True)
class TraceEnvironment:
    """Describes what was traced: profiler, framework, GPUs, ranks and files."""

    profiler: str
    framework: str | None  # None where the trace does not say
    gpu_model: str | None  # None where the trace does not say
    ranks: tuple[int, ...]  # those that have figures
    gpu_count: int  # on which they ran; several ranks may share one
    absent_rank_count: int  # ranks of the mesh that no trace holds
    mesh_sizes: Mapping[str, int]  # by axis
    file_count: int
    capture_count: int  # number of captures; figures are medians over them
    is_cut: bool  # some of the run was left out of the trace
    selection: WindowSelection


def describe_environment(
    captures: Captures, spec: WindowSpec, windows: Mapping[int, Sequence[RankWindow]], kernel_names: Iterable[str]
) -> TraceEnvironment:
    """Describe what the traces say about themselves; ``kernel_names`` are the names of the kernels that ran."""
    run = captures.runs[0]
    formats = [describe_format(trace.path) for trace in run.traces]
    framework = next(
        (FRAMEWORKS_BY_PROFILER[trace_format] for trace_format in formats if trace_format in FRAMEWORKS_BY_PROFILER),
        None,
    )
    return TraceEnvironment(
        _format_profiler(formats[0], captures.list_profilers()),
        find_framework([*kernel_names, captures.convention.range_anchor or ""], framework),
        run.find_gpu_model(),
        tuple(windows),
        run.count_gpus(tuple(windows)),
        count_absent_ranks(run.ranks)[0],
        {axis: size for axis, size in run.mesh_sizes.items() if size > 1},
        run.file_count,
        len(captures.runs),
        any(facts.cut_window_specs for facts in run.facts),
        _describe_selection(captures, spec, windows),
    )


def name_measured_unit(convention: Convention, spec: WindowSpec) -> str:
    """Return what shares are relative to, in one word: ``run``, ``step`` or ``window``.

    A range that the user names is a step if a framework marks steps with it.
    """
    if spec.is_whole_run:
        return "run"
    is_unknown_anchor = isinstance(spec.anchor, str) and spec.anchor not in STEP_ANCHORS
    return (
        "window"
        if spec.explicit_span_ns is not None or is_unknown_anchor or _is_part_of_step(convention, spec)
        else "step"
    )


def _is_part_of_step(convention: Convention, spec: WindowSpec) -> bool:
    """Return whether a step has several of the anchors that windows are picked from."""
    return convention.marks_parts if spec.anchor is None else spec.anchor in PART_ANCHORS


def find_framework(kernel_names: Iterable[str], default: str | None = None) -> str | None:
    """Find the framework of the program by the names of its kernels, else ``default``."""
    names = list(kernel_names)
    for framework, globs in FRAMEWORKS:
        if any(map(re.compile("|".join(map(translate, globs))).match, names)):
            return framework
    return default


def _format_profiler(trace_format: str, versions: Sequence[str]) -> str:
    """Format the profiler and its version: ``nsys 2025.5.2``, ``torch.profiler (schema 1)``; a cut keeps the version
    alone.
    """
    name = trace_format.rpartition(" of ")[2]
    version = " + ".join(map(format_profiler_version, versions))
    if not version:
        return name
    return f"{name} {version}" if version[0].isdigit() and " " not in name else f"{name} ({version})"


def _describe_selection(
    captures: Captures, spec: WindowSpec, windows: Mapping[int, Sequence[RankWindow]]
) -> WindowSelection:
    first_rank_windows = next(iter(windows.values()))
    anchor = find_anchor(captures.convention, spec)
    indices = {window.window.index for window in first_rank_windows}
    index = indices.pop() if len(indices) == 1 else None
    return WindowSelection(
        captures.convention.name,
        anchor if first_rank_windows[0].anchors else None,
        spec.window,
        spec.span,
        spec.kernels,
        index,
        len(first_rank_windows[0].anchors),
        bool(first_rank_windows[0].anchors) and _is_part_of_step(captures.convention, spec),
        spec.is_whole_run,
        name_measured_unit(captures.convention, spec),
        spec.explicit_span_ns is not None,
        None if index is None else first_rank_windows[0].window.name,
        spec.kind,
    )
