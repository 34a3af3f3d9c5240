"""What an out-of-memory message says, taken apart: how much of the card is whose."""

from __future__ import annotations

from flatout.base.records import Struct
from flatout.doctor.queries import kernel_error, number, symptom
from flatout.machine.machine_facts import Facts

OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation

# Neither torch's nor free: the CUDA context and its libraries (0.3 to 1 GiB), the desktop, communication buffers.
OVERHEAD_BYTES = 2 << 30
OVERHEAD_SHARE = 0.15

# Reserved and unused: some is always there (blocks are rounded up). A tenth decides where it would have held what was tried;
# a quarter is waste in any case.
UNUSED_SHARE, WASTED_SHARE = 0.1, 0.25


class Shortage(Struct, frozen=True, kw_only=True):
    tried: float | None
    allocated: float | None
    reserved: float | None  # with what is allocated of it
    free: float | None
    total: float | None
    others: float | None = None  # of other processes, where the message names them

    @property
    def unused(self) -> float | None:
        """Taken by torch's allocator, in pieces that hold nothing."""
        return None if self.reserved is None or self.allocated is None else self.reserved - self.allocated

    @property
    def elsewhere(self) -> float | None:
        """Taken by somebody else than this program's allocator."""
        if self.others is not None:
            return self.others
        mine = self.reserved if self.reserved is not None else self.allocated
        return None if self.total is None or self.free is None or mine is None else self.total - self.free - mine

    @property
    def held_by_others(self) -> bool:
        """More than overhead, more than lies unused, and enough to have mattered."""
        taken, total = self.elsewhere, self.total or 0
        if taken is None or taken < max(OVERHEAD_BYTES, OVERHEAD_SHARE * total):
            return False
        return taken > (self.unused or 0) and taken >= (self.tried or 0)

    @property
    def fragmented(self) -> bool:
        """What was tried would have fitted into what lies reserved and unused, had it been in one piece; or much is wasted."""
        if not self.unused or not self.reserved or self.held_by_others:
            return False
        share = self.unused / self.reserved
        return share >= WASTED_SHARE or (share >= UNUSED_SHARE and self.unused >= (self.tried or 0))


def read(facts: Facts) -> Shortage | None:
    """The first such message; without its figures where only the error is known."""
    found = symptom(facts, "out-of-memory")
    if found is None:
        codes = [item for item in facts.symptoms if item.code == "cuda-error" and item.params.get("code") == OUT_OF_MEMORY]
        if not codes and "out of memory" not in (kernel_error(facts) or ""):
            return None
    allocated, reserved = number(found, "allocated_bytes"), number(found, "reserved_bytes")
    if allocated is not None and reserved is not None and reserved < allocated:
        reserved += allocated  # newer messages give only what is "reserved by PyTorch but unallocated"
    return Shortage(
        tried=number(found, "tried_bytes"),
        allocated=allocated,
        reserved=reserved,
        free=number(found, "free_bytes"),
        total=number(found, "total_bytes"),
        others=number(found, "other_bytes"),
    )
