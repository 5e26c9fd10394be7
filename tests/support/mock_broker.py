"""librdkafka's own mock cluster, in this process: a broker for machines without Java.

The client's wheel carries it; its Python module shows only a part, so its C functions are called here. It cannot make
or grow topics for a client, and a fetch that waits is not woken by a message: consumers set `fetch.wait.max.ms` low.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import confluent_kafka

PRODUCE = 0  # the request whose next answers `fail` decides
_POINTER, _NUMBER, _TEXT = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "rd_kafka_conf_new": (_POINTER, []),
    "rd_kafka_conf_set": (_NUMBER, [_POINTER, _TEXT, _TEXT, _TEXT, ctypes.c_size_t]),
    "rd_kafka_new": (_POINTER, [_NUMBER, _POINTER, _TEXT, ctypes.c_size_t]),
    "rd_kafka_destroy": (None, [_POINTER]),
    "rd_kafka_mock_cluster_new": (_POINTER, [_POINTER, _NUMBER]),
    "rd_kafka_mock_cluster_destroy": (None, [_POINTER]),
    "rd_kafka_mock_cluster_bootstraps": (_TEXT, [_POINTER]),
    "rd_kafka_mock_topic_create": (_NUMBER, [_POINTER, _TEXT, _NUMBER, _NUMBER]),
    "rd_kafka_mock_broker_set_down": (_NUMBER, [_POINTER, ctypes.c_int32]),
    "rd_kafka_mock_broker_set_up": (_NUMBER, [_POINTER, ctypes.c_int32]),
    "rd_kafka_mock_push_request_errors_array": (
        None,
        [_POINTER, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(_NUMBER)],
    ),
    "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, [_POINTER, ctypes.c_int32]),
    "rd_kafka_mock_set_controller_id": (_NUMBER, [_POINTER, ctypes.c_int32]),
}


def _library() -> ctypes.CDLL:
    package = Path(confluent_kafka.__file__).parent
    found = [
        *package.parent.glob("confluent_kafka.libs/librdkafka*.so*"),
        *package.glob(".dylibs/librdkafka*.dylib"),
    ]
    library = ctypes.CDLL(str(found[0]) if found else "librdkafka.so.1")
    for name, (answer, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = answer, arguments
    return library


class MockBroker:
    """One broker with one topic. `with MockBroker("agent_turns", 2) as broker: broker.servers`."""

    def __init__(self, topic: str, partitions: int) -> None:
        self._library = _library()
        said = ctypes.create_string_buffer(512)
        settings = self._library.rd_kafka_conf_new()
        for name, value in ((b"client.id", b"mock"), (b"log_level", b"2")):
            assert self._library.rd_kafka_conf_set(settings, name, value, said, len(said)) == 0, said.value
        self._client = self._library.rd_kafka_new(0, settings, said, len(said))
        assert self._client, said.value
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._client, 1)
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        self._library.rd_kafka_mock_set_controller_id(self._cluster, 1)  # else admin calls wait out their time
        assert self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1) == 0
        self.servers = str(self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)

    def down(self) -> None:
        self._library.rd_kafka_mock_broker_set_down(self._cluster, 1)

    def up(self) -> None:
        self._library.rd_kafka_mock_broker_set_up(self._cluster, 1)

    def fail(self, request: int, *codes: int) -> None:
        """The next requests of this kind are answered with these error codes."""
        numbers = (ctypes.c_int * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(self._cluster, request, len(codes), numbers)
