"""Looking things up in an archive as a store query does: by hash, and a page of a time range in either direction."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.storage.archive import ArchiveCursor, PageQuery
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.waku_message import WakuMessage

SHARD = "/waku/2/rs/1/0"
TOPIC = "/fairway/1/tests/proto"


def archive_of(path, keys):
    """Make an archive of messages with these (timestamp, first byte of hash)."""
    archive = NwakuArchive(path)
    for stamp, byte in keys:
        message = WakuMessage(payload=b"%d/%d" % (stamp, byte), content_topic=TOPIC, timestamp_ns=stamp)
        archive.append(SHARD, message, bytes([byte]) * 32)
    return archive


def keys_of(rows):
    return [(row.timestamp_ns, row.message_hash[0]) for row in rows]


@examples(0.4)
@given(
    keys=st.sets(st.tuples(st.integers(1, 4), st.sampled_from([0, 1, 7, 254, 255])), min_size=1),
    rows=st.integers(1, 6),
    newest_first=st.booleans(),
    data=st.data(),
)
def test_a_page_is_the_run_of_the_order_that_was_asked_for(tmp_path_factory, keys, rows, newest_first, data):
    keys = {byte: (stamp, byte) for stamp, byte in keys}.values()  # a hash belongs to one message
    ordered = sorted(keys)
    start, end = data.draw(st.none() | st.integers(0, 5)), data.draw(st.none() | st.integers(0, 5))
    beyond = data.draw(st.none() | st.sampled_from(ordered))
    expected = [
        key
        for key in ordered
        if (start is None or key[0] >= start)
        and (end is None or key[0] < end)
        and (beyond is None or (key < beyond if newest_first else key > beyond))
    ]
    with archive_of(tmp_path_factory.mktemp("pages") / "a", keys) as archive:
        page = archive.page(
            PageQuery(
                start_ns=start,
                end_ns=end,
                beyond=None if beyond is None else ArchiveCursor(beyond[0], bytes([beyond[1]]) * 32),
                newest_first=newest_first,
                rows=rows,
            )
        )
    assert keys_of(page) == (expected[-rows:] if newest_first else expected[:rows])
