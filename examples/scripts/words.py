"""Draw a step in which every word of time occurs, and write it as words.sqlite: a character is 0.1 ms."""

from pathlib import Path

from tests.support.samples.builder import Process, TraceBuilder

CHARACTER_NS = 100_000
RULER = "0 ms      1         2         3         4         5         6 "
LAUNCHES = "a xb                                c d                     a"
COMPUTE = "aaaaaaaaaa          bbbbbbbbbb      cccccccccc  dd          a"
COMMUNICATION = "     xxxxxxxxxxxxxxx                                         "
WORDS = (
    "     └─┬─┘└───┬────┘          └─┬──┘          └┤  └───┬────┘",
    "  overlap  exposed, blocks b  starved      stalled  between steps",
)


def write_step(gpu: Process, begin_ns: int) -> None:
    """Put one step into the trace; b waits for x, by an event."""

    def find(lane: str, letter: str) -> tuple[int, int]:
        """Return when a kernel begins and ends, in the first step of the drawing."""
        step = lane[:60]
        return begin_ns + step.index(letter) * CHARACTER_NS, begin_ns + (step.rindex(letter) + 1) * CHARACTER_NS

    names = {"a": "embedding", "b": "gemm", "c": "attention", "d": "adamw", "x": "ncclDevKernel_AllReduce"}
    gpu.range("step 1", begin_ns, begin_ns + 50 * CHARACTER_NS)
    for letter, name in names.items():
        lane, stream = (COMMUNICATION, 20) if letter == "x" else (COMPUTE, 7)
        launch_ns = find(LAUNCHES, letter)[0]
        gpu.kernel(name, *find(lane, letter), stream=stream, launch_ns=launch_ns, launch_length_ns=0)
        if letter == "x":
            done = gpu.event_record(launch_ns + 1_000, stream=20)
            gpu.stream_wait(launch_ns + 2_000, done, stream=7)


if __name__ == "__main__":
    trace = TraceBuilder()
    process = trace.process()
    for number in range(6):
        write_step(process, number * 60 * CHARACTER_NS)
    trace.write(Path("words.sqlite"))
    lanes = {"": RULER, "launched": LAUNCHES, "compute": COMPUTE, "communication": COMMUNICATION}
    print("\n".join(f"{name:15}{lane}".rstrip() for name, lane in lanes.items()))
    print("\n".join(f"{'':15}{line}".rstrip() for line in WORDS))
