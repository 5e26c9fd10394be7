"""How far each partition may be committed: up to the first delivery that is not acked."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Partition:
    assignment: int
    received: deque[int] = field(default_factory=deque)  # offsets in order, from the first that is not acked
    acked: set[int] = field(default_factory=set)
    mark: int | None = None  # the offset to commit: where the next owner begins
    committed: int | None = None

    def advance(self) -> None:
        while self.received and self.received[0] in self.acked:
            offset = self.received.popleft()
            self.acked.discard(offset)
            self.mark = offset + 1


class Marks:
    """Of the partitions that are ours now. Not safe for threads: the poll thread's alone.

    An assignment has a number. What belongs to an earlier one, or to a partition that is not ours, is refused here: the
    broker takes a member's commit for any partition.
    """

    def __init__(self) -> None:
        self._partitions: dict[int, _Partition] = {}
        self._count = 0

    def assign(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._count += 1
            self._partitions[partition] = _Partition(self._count)

    def revoke(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._partitions.pop(partition, None)

    @property
    def owned(self) -> list[int]:
        return sorted(self._partitions)

    def received(self, partition: int, offset: int) -> int | None:
        """Note a delivery; answers the number of the assignment, None when it is not (or no longer) one of ours."""
        known = self._partitions.get(partition)
        if known is None:
            return None
        known.received.append(offset)
        return known.assignment

    def ack(self, partition: int, assignment: int, offset: int) -> None:
        known = self._partitions.get(partition)
        if known is not None and known.assignment == assignment:
            known.acked.add(offset)
            known.advance()

    def due(self) -> dict[int, int]:
        """{partition: offset} that may be committed and is not."""
        return {n: p.mark for n, p in self._partitions.items() if p.mark is not None and p.mark != p.committed}

    def assignments(self, partitions: Iterable[int]) -> dict[int, int]:
        return {n: self._partitions[n].assignment for n in partitions if n in self._partitions}

    def committed(self, partition: int, assignment: int, offset: int) -> None:
        known = self._partitions.get(partition)
        if known is not None and known.assignment == assignment:
            known.committed = offset
