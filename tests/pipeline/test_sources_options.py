"""The options of the data source, from text to values."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from fairway.errors import ConfigurationError
from fairway.pipeline.sources.options import DEFAULT_SETTLE_MS, SourceOptions, offset_of, place_of
from fairway.storage.archive import ArchiveCursor

OFFSET = '{"timestamp": 1760000000000000001, "hash": "0x%s"}' % ("ab" * 32)
PLACE = ArchiveCursor(1_760_000_000_000_000_001, b"\xab" * 32)


def test_everything_is_taken_in_any_case():
    options = SourceOptions.parse(
        {
            "URI": "sqlite:a.db",
            "Label": "a",
            "contenttopics": "/a/1/b/proto, /c/1/d/proto,",
            "PUBSUBTOPIC": "/waku/2/rs/1/0",
            "channels": "team",
            "startingTimestamp": "1",
            "endingTimestamp": "9",
            "startingOffsets": OFFSET,
            "endingOffsets": "LATEST",
            "maxOffsetsPerTrigger": "10",
            "minPartitions": "3",
            "failOnDataLoss": "False",
            "settleMs": "0",
        }
    )
    chosen = options.selection
    assert (options.uri, options.label, options.starting, options.min_partitions) == ("sqlite:a.db", "a", PLACE, 3)
    assert (options.max_offsets_per_trigger, options.fail_on_data_loss, options.settle_ns) == (10, False, 0)
    assert (chosen.content_topics, chosen.channels) == (("/a/1/b/proto", "/c/1/d/proto"), ("team",))
    assert (chosen.start_ns, chosen.end_ns, chosen.pubsub_topic) == (1, 9, "/waku/2/rs/1/0")


def test_without_options_everything_is_read_from_the_beginning():
    options = SourceOptions.parse({"path": "a.db"})
    assert (options.starting, options.fail_on_data_loss) == ("earliest", True)
    assert options.settle_ns == DEFAULT_SETTLE_MS * 1_000_000
    assert options.max_offsets_per_trigger is options.min_partitions is options.selection.through is None


def test_a_place_survives_as_an_offset():
    assert place_of(offset_of(PLACE)) == PLACE
    assert place_of({"timestamp": 5}) == ArchiveCursor(5, b"")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "needs a path or a URI"),
        ({"contentTopic": "/a/1/b/proto"}, "has no option contenttopic; it has path"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp must be a whole number"),
        ({"minPartitions": "0"}, "minPartitions must be at least 1"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger must be at least 1"),
        ({"settleMs": "-1"}, "settleMs must be at least 0"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss must be true or false"),
        ({"startingOffsets": "newest"}, "option startingOffsets"),
        ({"startingOffsets": "[]"}, "is no offset; expected one like"),
        ({"startingOffsets": '{"timestamp": 1.5}'}, "is no offset"),
        ({"startingOffsets": '{"timestamp": 9223372036854775808}'}, "is no offset"),
        ({"startingOffsets": '{"timestamp": 1, "hash": "zz"}'}, "is no offset"),
        ({"startingOffsets": '{"timestamp": 1, "hash": 7}'}, "is no offset"),
        ({"startingOffsets": '{"timestamp": 1, "hsah": ""}'}, "is no offset"),
        ({"endingOffsets": "earliest"}, "endingOffsets is 'latest' or an offset"),
    ],
)
def test_what_cannot_work_is_named(given, why):
    with pytest.raises(ConfigurationError, match=why):
        SourceOptions.parse({"path": "a.db", **given} if given else {})
