"""Bodies as bytes."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from dispatch.api.parsing import MAX_BYTES, MAX_LARGE_BYTES, BodyTooLarge, StrictJSONParser, loads
from dispatch.errors import Invalid

MANY = {"view": SimpleNamespace(large_actions=frozenset({"dispatch_many"}))}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b'{"action": "dispatch", ',
        b"[1, 2]",
        b'"dispatch"',
        b"null",
        b"7",
        b'{"a":"\xff\xfe"}',
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"a":' * 200_000,
        b"[" * 1_000_000,
        b'{"a":' + b"9" * 10_000 + b"}",
        b'{"a":1}{"b":2}',
        b"{'a':1}",
    ],
    ids=lambda raw: repr(raw[:20]),
)
def test_what_is_not_one_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(Invalid) as caught:
        loads(raw)
    assert caught.value.code == "invalid"


def test_a_key_given_twice_is_named() -> None:
    with pytest.raises(Invalid) as caught:
        loads(b'{"a": {"task": 1, "task": 2}}')
    assert caught.value.fields == {"task": "is given twice"}


def test_an_object_comes_back_as_it_was() -> None:
    assert loads('{"task": "é\\u0001", "n": [1, 2.5, null, true]}'.encode()) == {
        "task": "é\x01",
        "n": [1, 2.5, None, True],
    }


def body_of_size(size: int, action: str) -> io.BytesIO:
    head = f'{{"action":"{action}","x":"'.encode()
    return io.BytesIO(head + b"x" * (size - len(head) - 2) + b'"}')


def test_a_mebibyte_is_the_bound() -> None:
    parser = StrictJSONParser()
    assert parser.parse(body_of_size(MAX_BYTES, "dispatch"), parser_context=MANY)["action"] == "dispatch"
    with pytest.raises(BodyTooLarge):
        parser.parse(body_of_size(MAX_BYTES + 1, "dispatch"), parser_context=MANY)


def test_a_large_action_takes_eight_mebibytes_and_no_more() -> None:
    parser = StrictJSONParser()
    assert parser.parse(body_of_size(MAX_LARGE_BYTES, "dispatch_many"), parser_context=MANY)
    with pytest.raises(BodyTooLarge):
        parser.parse(body_of_size(MAX_LARGE_BYTES + 1, "dispatch_many"), parser_context=MANY)


def test_a_view_without_large_actions_reads_no_more_than_a_mebibyte() -> None:
    stream = body_of_size(MAX_LARGE_BYTES, "dispatch_many")
    with pytest.raises(BodyTooLarge):
        StrictJSONParser().parse(stream, parser_context={"view": SimpleNamespace()})
    assert stream.tell() == MAX_BYTES + 1
