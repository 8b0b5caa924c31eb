"""How does one write NCCL's own ranges into an export, with the payloads that say who sends how much?

trace = TraceBuilder()
gpu = trace.process()
nccl = NcclRanges(trace)
nccl.communicator(gpu, 0xABC, ranks=8, rank=0)
nccl.call(gpu, "ncclAllReduce", 1_000, 2_000, 0xABC, 4_096)
gpu.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 4_000, 8_000, launch_ns=1_500)
"""

import struct
from collections.abc import Sequence

from tests.support.samples.builder import PUSH_POP_RANGE, Process, TraceBuilder
from tests.support.samples.schema import NVTX

NCCL_DOMAIN = 1
FIRST_SCHEMA = 1 << 24
INIT, MESSAGE, PEER, ALONE = (FIRST_SCHEMA + n for n in (2, 4, 10, 14))
"""Schemas: of a communicator made, of a collective, of a send or receive, and of what names the communicator alone."""

_U64, _INT, _SIZE = 18, 5, 22
_COMMUNICATOR = ("NCCL communicator ID", _U64, None)
_BYTES = ("Message size [bytes]", _SIZE, 8)
SCHEMAS: dict[int, Sequence[tuple[str, int, int | None]]] = {
    INIT: (_COMMUNICATOR, ("No. of ranks", _INT, 8), ("Rank", _INT, 12), ("CUDA device", _INT, 16)),
    MESSAGE: (_COMMUNICATOR, _BYTES),
    PEER: (_COMMUNICATOR, _BYTES, ("Peer rank", _INT, 16)),
    ALONE: (_COMMUNICATOR,),
}
"""Name, type and offset of each field, as NCCL registers them and nsys exports them: an offset of 0 is NULL."""


class NcclRanges:
    """NCCL's ranges in one trace."""

    def __init__(self, trace: TraceBuilder) -> None:
        self.trace = trace
        for schema, fields in SCHEMAS.items():
            size = {INIT: 24, MESSAGE: 16, PEER: 24, ALONE: 8}[schema]
            where = {"domainId": NCCL_DOMAIN, "schemaId": schema}
            trace.insert("NVTX_PAYLOAD_SCHEMAS", **where, type=1, numEntries=len(fields), payloadSize=size)
            for idx, (name, kind, offset) in enumerate(fields):
                trace.insert("NVTX_PAYLOAD_SCHEMA_ENTRIES", **where, idx=idx, type=kind, name=name, offset=offset)

    def communicator(self, process: Process, number: int, ranks: int, rank: int = 0) -> None:
        """A communicator that was made before the capture began."""
        payload = struct.pack("<Qiii4x", number, ranks, rank, 0)
        self._range(process, "ncclCommInitRankConfig", -2_000, -1_000, INIT, payload)

    def call(
        self,
        process: Process,
        name: str,
        start_ns: int,
        end_ns: int,
        communicator: int,
        size_bytes: int,
        *,
        peer: int | None = None,
        thread: int | None = None,
    ) -> None:
        """A call of NCCL; ``peer`` of a send or a receive."""
        if peer is None:
            schema, payload = MESSAGE, struct.pack("<QQ", communicator, size_bytes)
        else:
            schema, payload = PEER, struct.pack("<QQi4x", communicator, size_bytes, peer)
        self._range(process, name, start_ns, end_ns, schema, payload, thread)

    def plain(self, process: Process, name: str, start_ns: int, end_ns: int, *, thread: int | None = None) -> None:
        """A range of NCCL that has no payload, as ``ncclGroupEnd``."""
        self._range(process, name, start_ns, end_ns, 0, None, thread)

    def _range(
        self,
        process: Process,
        name: str,
        start_ns: int,
        end_ns: int,
        schema: int,
        payload: bytes | None,
        thread: int | None = None,
    ) -> None:
        head = struct.pack("<QQQQ", NCCL_DOMAIN, schema, len(payload or b""), 32)
        self.trace.insert(
            NVTX,
            start=start_ns,
            end=end_ns,
            eventType=PUSH_POP_RANGE,
            textId=self.trace.strings.id_of(name),
            globalTid=process.global_tid(thread),
            domainId=NCCL_DOMAIN,
            binaryData=None if payload is None else head + payload,
        )
