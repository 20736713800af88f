"""Server-sent events from bytes (WHATWG HTML, "Parsing an event stream").

Pure: bytes in, events out. At most `MAX_EVENT_BYTES` of an event are held; a longer one is a `DecodeError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairway.errors import DecodeError

MAX_EVENT_BYTES: Final = 4_194_304


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One event."""

    kind: str
    """``message`` unless the stream names another."""
    data: bytes


class EventParser:
    """One stream."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._kind = ""

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the events that are complete now."""
        self._rest += chunk
        events: list[ServerEvent] = []
        if b"\n" in chunk:  # else a long line that comes in small pieces would be looked through again for each
            *lines, rest = bytes(self._rest).split(b"\n")
            self._rest = bytearray(rest)
            for line in lines:
                event = self._line(line.removesuffix(b"\r"))
                if event is not None:
                    events.append(event)
        if len(self._rest) + self._data_bytes > MAX_EVENT_BYTES:
            raise DecodeError(f"a server-sent event of more than {MAX_EVENT_BYTES} bytes")
        return events

    def _line(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._dispatched()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
                self._data_bytes += len(value)
            case b"event":
                self._kind = value.decode(errors="replace")
            case _:
                return None  # a comment, which says that the stream is alive, an id, or an unknown field
        return None

    def _dispatched(self) -> ServerEvent | None:
        data, kind = self._data, self._kind
        self._data, self._data_bytes, self._kind = [], 0, ""
        if not data:
            return None
        return ServerEvent(kind=kind or "message", data=b"\n".join(data))
