"""What may be committed: never past a delivery that is not acked, never for a partition that is not ours."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dispatch.transports.kafka.marks import Marks


def assigned(*partitions: int) -> Marks:
    marks = Marks()
    marks.assign(partitions)
    return marks


def test_the_mark_stands_before_the_first_delivery_that_is_not_acked() -> None:
    marks = assigned(0)
    numbers = {offset: marks.received(0, offset) for offset in (5, 6, 9)}  # offsets may have gaps
    assert marks.due() == {}
    for offset, expected in ((6, {}), (5, {0: 7}), (9, {0: 10})):
        number = numbers[offset]
        assert number is not None
        marks.ack(0, number, offset)
        assert marks.due() == expected


def test_a_committed_mark_is_not_due_and_one_of_an_earlier_assignment_is_refused() -> None:
    marks = assigned(0)
    first = marks.received(0, 1)
    assert first is not None
    marks.ack(0, first, 1)
    marks.committed(0, first, 2)
    assert marks.due() == {}
    marks.revoke([0])
    assert marks.received(0, 2) is None
    marks.assign([0])
    second = marks.received(0, 1)
    assert second != first
    marks.ack(0, first, 1)
    assert marks.due() == {}, "the ack belongs to what was taken away"
    marks.committed(0, first, 99)
    assert second is not None
    marks.ack(0, second, 1)
    assert marks.due() == {0: 2}


@given(st.lists(st.integers(0, 40), unique=True, min_size=1), st.data())
def test_whatever_the_order_of_acks_the_mark_never_passes_an_open_delivery(
    offsets: list[int], data: st.DataObject
) -> None:
    marks, offsets = assigned(3), sorted(offsets)
    for offset in offsets:
        marks.received(3, offset)
    acked = data.draw(st.lists(st.sampled_from(offsets), unique=True))
    for offset in acked:
        marks.ack(3, 1, offset)
    still_open = [offset for offset in offsets if offset not in acked]
    mark = marks.due().get(3, 0)
    assert all(mark <= offset for offset in still_open)
    if not still_open:
        assert mark == offsets[-1] + 1
