"""What was traced, with which profiler, on which machine, and which windows of it are looked at?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.windows.circumstances import profiler_shown
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.spans import WindowSpec, absent_ranks, anchor_of
from pytest_nsys.core.conventions import BUILT_IN, PARTS_OF_A_STEP, Anchor, Convention
from pytest_nsys.core.model import KernelsMode, Span
from pytest_nsys.traces.opening import format_of

FRAMEWORKS = (
    ("SGLang", ("*sgl_*", "*sglang*")),
    ("vLLM", ("*vllm::*",)),
    ("TensorRT-LLM", ("*tensorrt_llm::*",)),
    ("PyTorch", ("*at::native::*", "*N2at6native*", "triton_*_fused_*", "*c10::*")),
    ("JAX", ("loop_*_fusion*", "input_*_fusion*", "gemm_fusion_*")),
)
"""What names of kernels say of the program: the first that one of them fits."""

ANCHORS_OF_STEPS = {convention.anchor for convention in BUILT_IN.values()} - {*PARTS_OF_A_STEP}

OF_PROFILERS = {"torch.profiler": "PyTorch", "JAX": "JAX"}
"""The framework that a profiler is a part of."""


@dataclass(frozen=True, slots=True)
class Found:
    """Describes how the windows were found."""

    convention: str
    anchor: Anchor | None  # what begins the steps, None where there are none
    window: str
    span: Span
    kernels: KernelsMode
    index: int | None  # of the window, None where it is none of them, or several
    count: int  # of the first rank
    part: bool  # a step has several anchors
    whole_run: bool
    of: str  # what is measured, in one word
    stated: bool = False  # the window is a span of time that somebody gave
    name: str | None = None  # of the window's anchor on the first rank
    kind: str | None = None  # of the steps that are looked at, where steps have kinds

    @property
    def typed(self) -> str | None:
        """The steps of a kind as ``--window`` takes them; None where steps have no kinds."""
        return None if self.kind is None else WindowSpec(self.window, kind=self.kind).typed

    @property
    def numbered(self) -> str:
        """The window as ``--window`` takes it."""
        window = self.window if self.index is None else str(self.index)
        return window if self.kind is None else f"'{window} {self.kind}'"


@dataclass(frozen=True, slots=True)
class RunSubject:
    """Describes what was traced: profiler, framework, GPUs, ranks and files."""

    profiler: str
    framework: str | None  # None where the trace does not say
    gpu: str | None  # None where the trace does not say
    ranks: tuple[int, ...]  # those that have figures
    gpus: int  # on which they ran; several ranks may share one
    absent: int  # ranks of the mesh that no trace holds
    mesh: Mapping[str, int]  # by axis
    files: int
    captures: int  # runs of the program of which the figures are medians
    is_cut: bool  # some of the run was left out of the trace
    found: Found


def subject_of(
    captures: Captures, spec: WindowSpec, windows: Mapping[int, Sequence[RankWindow]], kernels: Iterable[str]
) -> RunSubject:
    """Describe what the traces say of themselves; ``kernel_names`` are those that ran."""
    run = captures.runs[0]
    formats = [format_of(trace.path) for trace in run.traces]
    framework = next((OF_PROFILERS[trace_format] for trace_format in formats if trace_format in OF_PROFILERS), None)
    return RunSubject(
        _profiler(formats[0], captures.profilers()),
        framework_of([*kernels, captures.convention.range_anchor or ""], framework),
        run.gpu_model(),
        tuple(windows),
        run.count_gpus(tuple(windows)),
        absent_ranks(run.ranks)[0],
        {axis: size for axis, size in run.sizes.items() if size > 1},
        run.files,
        len(captures.runs),
        any(facts.views for facts in run.facts),
        _found(captures, spec, windows),
    )


def what_is_measured(convention: Convention, spec: WindowSpec) -> str:
    """Return what shares of a window are of, in one word: ``run``, ``step`` or ``window``.

    A range that somebody names is a step where a framework says so.
    """
    if spec.whole_run:
        return "run"
    is_unknown_anchor = isinstance(spec.anchor, str) and spec.anchor not in ANCHORS_OF_STEPS
    return "window" if spec.explicit is not None or is_unknown_anchor or _is_part(convention, spec) else "step"


def _is_part(convention: Convention, spec: WindowSpec) -> bool:
    """Whether a step has several of what the windows are picked from."""
    return convention.marks_parts if spec.anchor is None else spec.anchor in PARTS_OF_A_STEP


def framework_of(kernels: Iterable[str], usual: str | None = None) -> str | None:
    """Find what the program was written with, by the names of its kernels; else ``default``."""
    names = list(kernels)
    for framework, globs in FRAMEWORKS:
        if any(map(re.compile("|".join(map(translate, globs))).match, names)):
            return framework
    return usual


def _profiler(written: str, versions: Sequence[str]) -> str:
    """Format the profiler and its version: ``nsys 2025.5.2``, ``torch.profiler (schema 1)``; a cut keeps the version
    alone.
    """
    name = written.rpartition(" of ")[2]
    version = " + ".join(map(profiler_shown, versions))
    if not version:
        return name
    return f"{name} {version}" if version[0].isdigit() and " " not in name else f"{name} ({version})"


def _found(captures: Captures, spec: WindowSpec, windows: Mapping[int, Sequence[RankWindow]]) -> Found:
    first_rank_windows = next(iter(windows.values()))
    anchor = anchor_of(captures.convention, spec)
    indices = {window.window.index for window in first_rank_windows}
    index = indices.pop() if len(indices) == 1 else None
    return Found(
        captures.convention.name,
        anchor if first_rank_windows[0].anchors else None,
        spec.window,
        spec.span,
        spec.kernels,
        index,
        len(first_rank_windows[0].anchors),
        bool(first_rank_windows[0].anchors) and _is_part(captures.convention, spec),
        spec.whole_run,
        what_is_measured(captures.convention, spec),
        spec.explicit is not None,
        None if index is None else first_rank_windows[0].window.name,
        spec.kind,
    )
