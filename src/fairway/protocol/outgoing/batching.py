"""Batches: sends that share one request, one segment and one SDS message.

A batch has the request id of its first send; `id_in_batch` makes the ids of the others. It is acknowledged,
retransmitted and expires as a whole. While its segment waits in the outbox, later sends may join it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fairway.protocol.outgoing.pending_segments import PendingSegments
from fairway.protocol.outgoing.request import SendRequest
from fairway.protocol.outgoing.request_table import RequestTable
from fairway.protocol.segmentation.segmenter import OutgoingSegment
from fairway.protocol.shared import Shared
from fairway.wire.batch import MAX_BATCH, batch_bytes, encode_batch, id_in_batch

_REWRITTEN_BYTES: Final = 16_384
"""Payloads of a batch that later sends join. Each join writes the whole batch to the store, about as much as a commit
of SQLite writes anyway. A larger batch is joined only by as many bytes as it has."""


class Batching:
    """The newest batch of one channel, and which sends fit it."""

    def __init__(self, shared: Shared, requests: RequestTable, outbox: PendingSegments) -> None:
        self._segmenter, self._requests, self._outbox = shared.segmenter, requests, outbox
        largest = shared.options.segmentation.max_message_size_bytes
        self.limit_bytes = min(largest, shared.segmenter.segment_payload_bytes)
        """Largest size of an encoded batch, which is not segmented."""
        self._request_id = ""
        self._payloads: list[bytes] = []
        self._message_ids: list[str] = []

    def fits(self, count: int, payload_bytes: int) -> bool:
        """Return whether ``count`` payloads of ``payload_bytes`` in total fit one batch."""
        return count <= MAX_BATCH and batch_bytes(count, payload_bytes) <= self.limit_bytes

    def segments(self, payloads: Sequence[bytes]) -> tuple[OutgoingSegment, ...]:
        """Return the segments of a batch; one payload alone is sent unmodified."""
        return self._segmenter.split(encode_batch(payloads) if len(payloads) > 1 else payloads[0]).segments

    def joinable(self, sizes: Sequence[int], required_count: int, names: frozenset[str]) -> SendRequest | None:
        """Return the request of the newest batch if payloads of these sizes can join it.

        Its segment must be the newest in the outbox, because messages are sent in the order of the calls.
        """
        request, newest = self._requests.open.get(self._request_id), self._outbox.newest
        if request is None or newest is None or newest.request_id != self._request_id or request.segment_count > 1:
            return None
        if (request.required_count, request.required_from, request.deadline_ms) != (required_count, names, None):
            return None
        if request.size_bytes > max(_REWRITTEN_BYTES, sum(sizes)):
            return None
        return request if self.fits(len(self._payloads) + len(sizes), request.size_bytes + sum(sizes)) else None

    def join(self, request: SendRequest, payloads: Sequence[bytes], message_ids: Sequence[str]) -> list[str]:
        """Add payloads to the newest batch, or to that of a new request; return the request ids of their sends."""
        if request.request_id != self._request_id:
            self._request_id, self._payloads, self._message_ids = request.request_id, [], []
        first = len(self._payloads)
        self._payloads += payloads
        self._message_ids += message_ids
        if first:
            request.size_bytes += sum(map(len, payloads))
            self._requests.touch(request)
            self._outbox.replace_newest(self.segments(self._payloads)[0].content)
        if len(self._payloads) > 1:
            self._requests.set_batch(self._request_id, tuple(self._message_ids))
        return [id_in_batch(self._request_id, index) for index in range(first, len(self._payloads))]
