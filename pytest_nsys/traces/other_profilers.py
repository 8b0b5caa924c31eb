"""Which traces of known profilers are not supported, or hold nothing to measure, and what should a user do instead?

Each is described in one line, with the way out, so that nobody has to guess what is wrong with a file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from pytest_nsys.core.file_names import DRAWING_MARK_MEMBER

# Globs of the calls that launch a kernel, or a graph of them; versions are in their names: cudaLaunchKernelExC_v11060.
LAUNCH_GLOBS = ("*Launch*Kernel*", "*GraphLaunch*")

MEASURED_GPUS = "only GPUs of NVIDIA and AMD are measured"

_ROCPD_ADVICE = "profile with rocprofv3 -f rocpd"
_PERFETTO_ADVICE = (
    "is a Perfetto trace, a protobuf, which is not read: export JSON (prof.export_chrome_trace('trace.json')); of "
    f"rocprofv3, {_ROCPD_ADVICE}"
)

UNREAD_SUFFIXES: Mapping[str, str] = {
    ".pftrace": _PERFETTO_ADVICE,
    ".perfetto-trace": _PERFETTO_ADVICE,
    ".ncu-rep": (
        "is a report of Nsight Compute, which looks into single kernels and has no timeline: capture with Nsight "
        "Systems (nsys profile --trace=cuda,nvtx)"
    ),
}
"""By suffix: what the file is, and what to do."""

_ROCPROF_ADVICE = f"of rocprof, which rocprofv3 replaces: {_ROCPD_ADVICE}"
# The header of results.csv (rocprof), of the file plugin of rocprofv2, and of results.stats.csv.
_ROCPROF_CSV_HEADER = re.compile(
    rb'\s*(?:"?Index"?,"?KernelName"?,|"?Dispatch_ID"?,"?GPU_ID"?,|"?Name"?,"?Calls"?,"?TotalDurationNs"?,)',
    re.IGNORECASE,
)

_UNREAD_JSON: Mapping[re.Pattern[bytes], str] = {
    re.compile(rb'"' + DRAWING_MARK_MEMBER.encode() + rb'"'): (
        "is a drawing ({}), which https://ui.perfetto.dev opens: measure the trace, or a cut of it (pytest-nsys cut)"
    ),
    re.compile(rb'"rocprofiler-sdk-tool"'): f"holds JSON of rocprofv3 ({{}}); its database is read: {_ROCPD_ADVICE}",
    re.compile(
        rb'"(?:\d+ )?CPU H(?:IP|SA) API"|"BeginNs"\s*:'
    ): f"holds JSON {_ROCPROF_ADVICE.replace(',', ' ({}),', 1)}",
    re.compile(
        rb'"Ascend Hardware"|"cat"\s*:\s*"(?:async_npu|HostToDevice)"'
    ): f"holds a trace of an Ascend NPU ({{}}), and {MEASURED_GPUS}: MindStudio Insight opens it",
}
"""By what stands near the beginning of JSON: what the file holds, with a place for its name, and what to do."""

# The categories are those of torch.profiler's ActivityType for devices that are no GPU of NVIDIA or AMD.
_OTHER_DEVICES: Mapping[str, tuple[str, ...]] = {
    "an Ascend NPU": ("async_npu", "HostToDevice"),
    "MTIA": ("mtia_runtime", "mtia_ccp_events", "mtia_insight", "mtia_workloadd", "mtia_counters"),
    "a Gaudi HPU": ("hpu_op",),
    "a GPU of Intel": ("xpu_runtime", "xpu_driver"),
    "a device of another vendor": ("privateuse1_runtime", "privateuse1_driver"),
}


def describe_json(start: bytes, name: str) -> str | None:
    """Return what JSON with this beginning holds, and what to do; None where it may be a trace that is read."""
    return next(
        (description.format(name) for pattern, description in _UNREAD_JSON.items() if pattern.search(start)), None
    )


def describe_csv(start: bytes) -> str | None:
    """Return what a CSV file with this beginning is, and what to do; None where no profiler is known to write it."""
    return f"is CSV {_ROCPROF_ADVICE}" if _ROCPROF_CSV_HEADER.match(start) else None


def describe_device(categories: Collection[str | None]) -> str | None:
    """Return of which device a trace of torch.profiler is that has events of these categories, and no kernel of a GPU.

    None where nothing says that it is of another device.
    """
    device = next(
        (name for name, device_categories in _OTHER_DEVICES.items() if not {*device_categories}.isdisjoint(categories)),
        None,
    )
    return (
        None if device is None else f"the trace is of {device}, and {MEASURED_GPUS}: open it in https://ui.perfetto.dev"
    )


def describe_missing_gpu(launches: int, advice: str) -> str:
    """Return that kernels were launched, and not recorded where they ran; ``advice`` is what to do."""
    launches_text = "1 launch is" if launches == 1 else f"{launches} launches are"
    return f"{launches_text} on record, but the GPU side was not recorded: {advice}"
