"""Which captures are in a rocpd database, and of which processes, GPUs and categories are their rows?

Each process writes the tables of its capture, whose names end in its uuid; a merged file has those of several. All ids
count within one capture. Views without the uuid may stand beside the tables; they are never read.

A process is identified by its machine and its number. Two captures of a file with the same of both (containers of one
machine) are two machines here, so no process is taken for another one.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from pytest_nsys.core.columns import Column
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.families import extract_short_name
from pytest_nsys.core.model import MACHINE_BITS, Setup
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.traces.sqlite.columns import InvalidValue, check_integers, check_text, collect_texts, report_damage
from pytest_nsys.traces.sqlite.conditions import NOT_TEXT, format_ids
from pytest_nsys.traces.sqlite.file import SqliteFile

TABLE_PREFIX = "rocpd_"
STRING_TABLE = TABLE_PREFIX + "string"
PROFILE_AGAIN = "profile again"
NEEDED_PROFILER = "profile with rocprofv3 of ROCm 7 (rocprofv3 -f rocpd)"
# The number of the schema before the first point: columns change with it.
SCHEMA_GENERATION = "3"

# Of rocmProfileData, which called its databases so years before rocprofv3 did.
ROCM_PROFILE_DATA_TABLES = frozenset({"rocpd_api", "rocpd_op", "rocpd_apiops"})

# What is read of each table.
ROCPD_COLUMNS: Mapping[str, str] = {
    "string": "id string",
    "info_process": "id nid pid",
    "info_agent": "id type",
    "info_kernel_symbol": "id kernel_name display_name",
    "event": "id category_id stack_id parent_stack_id extdata",
    "region": "pid tid start end name_id event_id",
    "kernel_dispatch": "pid agent_id kernel_id stream_id start end event_id",
    "memory_copy": "pid src_agent_id dst_agent_id stream_id start end event_id",
    "memory_allocate": "pid agent_id type level start address size",
}

# The stack id of an event that is in no call.
NO_STACK = 0
# Ids of strings and kernels count within one capture; so many bits are left to them.
CAPTURE_BITS = 40
PROCESS_BIT = 24
# The name of a kernel's descriptor ends in it, the name of the kernel does not.
_DESCRIPTOR_ENDING = re.compile(r"(?: \[clone \.kd\]|\.kd)\Z")
# Categories of markers whose calls are no ranges.
_NO_RANGE_CATEGORY = re.compile("CONTROL|NAME", re.IGNORECASE)


class Agent(NamedTuple):
    """Describes a CPU or a GPU."""

    is_gpu: bool
    device: int  # among the GPUs of the machine
    model: str
    identity: str = ""  # tells it from those of other machines; empty where nothing does


class Categories(NamedTuple):
    """Holds the ids of the categories of events, by what the events are of."""

    markers: Sequence[int]
    hip: Sequence[int]
    hsa: Sequence[int]
    rccl: Sequence[int]


class KernelSymbols(NamedTuple):
    """Holds the names of kernels, as numbers of texts, by ascending id."""

    ids: Column
    short_names: Column  # numbers in texts
    full_names: Column  # demangled names, numbers in texts
    texts: Sequence[str]

    def map_names(self) -> dict[int, tuple[str, str]]:
        """Return short and demangled name by id."""
        name_numbers = zip(self.ids, self.short_names, self.full_names, strict=True)
        return {number: (self.texts[short], self.texts[full]) for number, short, full in name_numbers}

    def find_name(self, number: int) -> str:
        """Return the short name of an id; empty where there is none."""
        return self.map_names().get(number, ("",))[0]


class RocpdCapture:
    """Reads the tables of one capture."""

    def __init__(self, file: SqliteFile, uuid: str, number: int) -> None:
        self.file, self._uuid, self.number = file, uuid, number
        self.processes: dict[int, int] = {}
        """The serialised id of each process, by the id of its row."""

    def get_table(self, kind: str) -> str:
        """Return the name that one of ``ROCPD_COLUMNS`` has in this capture."""
        return f"{TABLE_PREFIX}{kind}{self._uuid}"

    @property
    def first_id(self) -> int:
        """The number that is added to an id of the capture to make an id of the file."""
        return self.number << CAPTURE_BITS

    def check_columns(self) -> None:
        """Raise TraceError where a table, or a column of one, is not there."""
        for kind, names in ROCPD_COLUMNS.items():
            table = self.get_table(kind)
            if table not in self.file.tables:
                raise TraceError(f"{self.file.path}: has no table {table}: {PROFILE_AGAIN}")
            if missing := [name for name in names.split() if not self.file.has_columns(table, name)]:
                raise TraceError(
                    f"{self.file.path}: table {table} lacks the column {', '.join(missing)}: {NEEDED_PROFILER}"
                )

    @cached_property
    def agents(self) -> Mapping[int, Agent]:
        """The CPUs and GPUs by id."""
        table, column = self.get_table("info_agent"), self.file.get_column
        name_columns = ", ".join(column(table, name) for name in ("product_name", "model_name", "name"))
        agents: dict[int, Agent] = {}
        with report_damage(self.file, table):
            place_columns = ", ".join(column(table, name) for name in ("type_index", "nid", "absolute_index", "uuid"))
            rows = self.file.fetch_rows(f'SELECT id, type, {place_columns}, {name_columns} FROM "{table}" ORDER BY id')
            taken_devices: set[int] = set()
            machines = self._machine_names
            for number, kind, index, node, absolute, uuid, *names_found in rows:
                check_integers(number, number if index is None else index)
                is_gpu = kind == "GPU"
                device = number if index is None or (is_gpu and index in taken_devices) else index
                taken_devices |= {device} if is_gpu else set()
                model = next((check_text(name) for name in names_found if name), "")
                is_identified = node in machines and absolute is not None
                agents[number] = Agent(
                    is_gpu, device, model, f"{machines[node]} {absolute} {uuid}" if is_identified else ""
                )
        return agents

    @cached_property
    def _machine_names(self) -> Mapping[object, str]:
        """The name and the id of the machine of each node."""
        table = self.get_table("info_node")
        if not self.file.has_columns(table, "id", "machine_id", "hostname"):
            return {}
        rows = self.file.fetch_rows(f'SELECT id, hostname, machine_id FROM "{table}"')
        return {node: f"{host} {machine}" for node, host, machine in rows if host and machine}

    @cached_property
    def gpus(self) -> Sequence[int]:
        """The ids of the agents that are GPUs."""
        return [number for number, agent in self.agents.items() if agent.is_gpu]

    def get_process(self, process_row: int) -> int:
        """Return the serialised id of the process in a row of their table. Raises InvalidValue for none."""
        if process_row not in self.processes:
            raise InvalidValue(f"{process_row} is not a process of {self.get_table('info_process')}")
        return self.processes[process_row]

    def find_device(self, agent: int) -> int | None:
        """Return the number of the GPU that an agent is, None for a CPU. Raises InvalidValue for what is no agent."""
        if agent not in self.agents:
            raise InvalidValue(f"{agent} is not an agent of {self.get_table('info_agent')}")
        return self.agents[agent].device if self.agents[agent].is_gpu else None

    @cached_property
    def categories(self) -> Categories:
        """The categories of events, told by their names: ``MARKER_CORE_RANGE_API``, ``HIP_RUNTIME_API_EXT``,
        ``HSA_CORE_API`` …

        Where ranges have a category of their own, that of the calls which push and pop them does not count.
        """
        table, words = self.get_table("string"), ("MARKER", "HIP", "HSA", "RCCL")
        odd_condition = f"id IS NULL OR string IS NULL OR {NOT_TEXT.format('string')}"
        where = " OR ".join((*(f"string LIKE '%{word}%API%'" for word in words), odd_condition))
        with report_damage(self.file, table):
            # Every text of these ids: one that stands for two is refused, not read as the one that fits.
            ids = f'SELECT id FROM "{table}" WHERE {where}'
            names_by_id = collect_texts(
                self.file.fetch_rows(f'SELECT id, string FROM "{table}" WHERE id IN ({ids}) OR {odd_condition}')
            )
        marker_ids, *other_ids = ([n for n, name in names_by_id.items() if word in name.upper()] for word in words)
        range_ids = [n for n in marker_ids if "RANGE" in names_by_id[n].upper() and self.has_events(n)]
        return Categories(
            range_ids or [n for n in marker_ids if not _NO_RANGE_CATEGORY.search(names_by_id[n])], *other_ids
        )

    def has_events(self, category: int) -> bool:
        """Return whether there is an event of the category."""
        return bool(
            self.file.fetch_rows(f'SELECT 1 FROM "{self.get_table("event")}" WHERE category_id = {category} LIMIT 1')
        )

    def count_events(self, categories: Sequence[int]) -> int:
        """Return how many events some categories have."""
        where = f"category_id IN ({format_ids(categories)})"
        return int(self.file.fetch_rows(f'SELECT count(*) FROM "{self.get_table("event")}" WHERE {where}')[0][0])

    def find_strings(self, prefix: str) -> list[int]:
        """Return the ids of the strings that begin so."""
        rows = self.file.fetch_rows(f"SELECT id FROM \"{self.get_table('string')}\" WHERE string GLOB '{prefix}*'")
        return [number for (number,) in rows if type(number) is int]

    @cached_property
    def outer_calls(self) -> Mapping[int, int]:
        """The stack id of the outermost call around each call of HSA that is inside of one, by its own stack id."""
        hsa = [*filter(self.has_events, self.categories.hsa)]
        if not hsa:
            return {}
        table, calls = self.get_table("event"), f"category_id IN ({format_ids([*hsa, *self.categories.hip])})"
        inside = f"category_id IN ({format_ids(hsa)}) AND typeof(stack_id) = typeof(parent_stack_id)"
        stacks = {stack for (stack,) in self.file.fetch_rows(f'SELECT stack_id FROM "{table}" WHERE {calls}')} - {
            NO_STACK
        }
        rows = self.file.fetch_rows(f'SELECT stack_id, parent_stack_id FROM "{table}" WHERE {inside}')
        parents = {stack: parent for stack, parent in rows if parent in stacks and parent != stack}

        def find_outermost(stack: int) -> int:
            visited = {stack}
            while (parent := parents.get(stack, stack)) not in visited:
                visited.add(stack := parent)
            return stack

        return {stack: find_outermost(stack) for stack in parents if type(stack) is int}

    def read_kernel_names(self) -> dict[int, str]:
        """Return the names of the kernels that the capture knows, by their id in the file. Raises InvalidValue."""
        table = self.get_table("info_kernel_symbol")
        # A launch of a kernel that the profiler did not know has the id 0.
        names = {0: "unknown_kernel"}
        with report_damage(self.file, table):
            for number, name, display_name in self.file.fetch_rows(
                f'SELECT id, kernel_name, display_name FROM "{table}"'
            ):
                check_integers(number)
                if not 0 <= number < 1 << CAPTURE_BITS:
                    raise InvalidValue(f"{number} is no id of a kernel")
                names[number] = _DESCRIPTOR_ENDING.sub("", check_text(display_name or name or ""))
        return {number + self.first_id: name for number, name in names.items()}

    @cached_property
    def stream_column(self) -> str:
        """The column that tells streams apart: ``stream_id``, or ``queue_id`` where the profiler grouped by queue."""
        table = self.get_table("kernel_dispatch")
        if not self.file.has_columns(table, "queue_id") or self.file.fetch_rows(
            f'SELECT 1 FROM "{table}" WHERE stream_id <> 0 LIMIT 1'
        ):
            return "stream_id"
        # With --group-by-queue rocprofv3 writes stream 0 for every kernel: then queues tell the streams apart.
        queues = {queue for (queue,) in self.file.fetch_distinct("queue_id", table)}
        return "queue_id" if len(queues - {None}) > 1 else "stream_id"

    def read_setups(self) -> Iterator[tuple[int, Setup]]:
        """Yield the rank of each process whose launcher put it and the world into the environment."""
        table = self.get_table("info_process")
        if not self.file.has_columns(table, "environment"):
            return
        settings = (f"json_extract(environment, '$.{name}')" for name in ("RANK", "WORLD_SIZE"))
        # Nothing else of the environment is ever read: it holds whatever the user has in his.
        sql = f'SELECT id, {", ".join(settings)} FROM "{table}" WHERE json_valid(environment)'
        for row, *numbers in self.file.fetch_rows(sql):
            rank, world = (int(n) if re.fullmatch(r"\d{1,7}", str(n)) else -1 for n in numbers)
            if 0 <= rank < world and row in self.processes:
                yield self.processes[row], Setup(f"RANK={rank} of {world}", rank, {}, {"world": world})


def read_symbols(captures: Sequence[RocpdCapture]) -> KernelSymbols:
    """Return the names of the kernels that the captures know."""
    names_by_id = {number: name for capture in captures for number, name in capture.read_kernel_names().items()}
    ids = array("q", sorted(names_by_id))
    full = [names_by_id[number] for number in ids]
    short = [extract_short_name(name) for name in full]
    numbers = {text: number for number, text in enumerate(dict.fromkeys([*full, *short]))}
    short_names, full_names = (array("q", [numbers[name] for name in names]) for names in (short, full))
    return KernelSymbols(ids, short_names, full_names, list(numbers))


def find_captures(file: SqliteFile) -> tuple[RocpdCapture, ...]:
    """Return the captures of a database, by uuid.

    Raises TraceError for another generation of the schema, and where a table or column is missing.
    """
    if ROCM_PROFILE_DATA_TABLES & file.tables:
        raise TraceError(f"{file.path}: is a database of rocmProfileData (rpd), which is not read: {NEEDED_PROFILER}")
    for number in _read_schema_versions(file):
        if number.partition(".")[0] != SCHEMA_GENERATION:
            raise TraceError(
                f"{file.path}: is rocpd of schema {sanitize_line(number, 20)}, and {SCHEMA_GENERATION} is read: "
                f"{NEEDED_PROFILER}"
            )
    if any(name.startswith(TABLE_PREFIX + "timestamp") for name in file.tables):
        raise TraceError(
            f"{file.path}: is rocpd of a schema with times in {TABLE_PREFIX}timestamp, which is not read: "
            f"{NEEDED_PROFILER}"
        )
    uuids = sorted(
        name.removeprefix(STRING_TABLE) for name in file.tables if re.fullmatch(rf"{STRING_TABLE}(?:_[\w-]*)?", name)
    )
    if not uuids:
        raise TraceError(f"{file.path}: has no table {STRING_TABLE}_…, so nothing in it has a name: {PROFILE_AGAIN}")
    captures = tuple(RocpdCapture(file, uuid, number) for number, uuid in enumerate(uuids))
    for capture in captures:
        capture.check_columns()
    _number_processes(captures)
    return captures


def describe_schema(file: SqliteFile) -> str | None:
    """Describe the schema of the database; None where it does not state its version."""
    schema_versions = _read_schema_versions(file)
    return f"rocpd {sanitize_line(schema_versions[0], 20)}" if schema_versions else None


def _read_schema_versions(file: SqliteFile) -> list[str]:
    """Return the versions of the schema that the tables state, ordered."""
    tables = sorted(
        t for t in file.tables if t.startswith(TABLE_PREFIX + "metadata") and file.has_columns(t, "tag", "value")
    )
    sql = "SELECT value FROM \"{}\" WHERE tag = 'schema_version'"
    return sorted({str(value) for table in tables for (value,) in file.fetch_rows(sql.format(table))})


def _number_processes(captures: Sequence[RocpdCapture]) -> None:
    """Give each process its serialised id: its machine, by the order of the captures, and its number."""
    machines: dict[object, int] = {}
    taken_ids: set[int] = set()
    for capture in captures:
        table = capture.get_table("info_process")
        with report_damage(capture.file, table):
            nodes = _read_machine_ids(capture)
            for row, node, pid in capture.file.fetch_rows(f'SELECT id, nid, pid FROM "{table}" ORDER BY id'):
                check_integers(row, node, pid)
                if not 0 <= pid < 1 << PROCESS_BIT:
                    raise InvalidValue(f"{pid} is not a process number")
                machine = machines.setdefault(nodes.get(node, node), len(machines))
                # Containers of one machine may have the same process number: the second is put on a machine of its own.
                while (serial_id := machine << MACHINE_BITS | pid << PROCESS_BIT) in taken_ids:
                    machine = machines.setdefault(object(), len(machines))
                taken_ids.add(serial_id)
                capture.processes[row] = serial_id


def _read_machine_ids(capture: RocpdCapture) -> Mapping[object, object]:
    """Return what tells each node from all others, by its id."""
    table = capture.get_table("info_node")
    if not capture.file.has_columns(table, "id", "machine_id"):
        return {}
    return dict(capture.file.fetch_rows(f'SELECT id, machine_id FROM "{table}"'))
