"""The options of the data source, from text to values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from fairway.errors import ConfigurationError
from fairway.pipeline.sources.options import (
    DEFAULT_SETTLE_MS,
    OPTION_NAMES,
    SourceOptions,
    offset_of,
    option_texts,
    place_of,
)
from fairway.pipeline.sources.store_node import request_options
from fairway.pipeline.times import duration_ms, first_ns, last_ns
from fairway.storage.archive import ArchiveCursor
from iso_times import iso

ROOT = Path(__file__).parents[2]
SECOND = 1_000_000_000

OFFSET = '{"timestamp": 1760000000000000001, "hash": "0x%s"}' % ("ab" * 32)
PLACE = ArchiveCursor(1_760_000_000_000_000_001, b"\xab" * 32)


def test_everything_is_taken_in_any_case():
    options = SourceOptions.parse(
        {
            "PATH": "sqlite:a.db",
            "Label": "a",
            "Topics": "/a/1/b/proto, /c/1/d/proto,",
            "PUBSUBTOPIC": "/waku/2/rs/1/0",
            "channels": "team",
            "since": "1",
            "until": "9",
            "startingOffsets": OFFSET,
            "endingOffsets": "LATEST",
            "maxOffsetsPerTrigger": "10",
            "partitions": "3",
            "failOnDataLoss": "False",
            "settleMs": "0",
        }
    )
    chosen = options.selection
    assert (options.uri, options.label, options.starting, options.min_partitions) == ("sqlite:a.db", "a", PLACE, 3)
    assert (options.max_offsets_per_trigger, options.fail_on_data_loss, options.settle_ns) == (10, False, 0)
    assert (chosen.content_topics, chosen.channels) == (("/a/1/b/proto", "/c/1/d/proto"), ("team",))
    assert (chosen.start_ns, chosen.end_ns) == (1_000_000, 9_999_999)
    assert chosen.pubsub_topic == "/waku/2/rs/1/0"


def test_a_json_list_has_names_with_commas_in_them():
    options = SourceOptions.parse({"path": "a.db", "channels": '["team, the first", "b"]'})
    assert options.selection.channels == ("team, the first", "b")


def test_a_pattern_of_topics_is_an_option():
    chosen = SourceOptions.parse({"path": "a.db", "topicsPattern": "/app/1/.*/proto"}).selection
    assert (chosen.topics_pattern, chosen.content_topics) == ("/app/1/.*/proto", ())
    assert SourceOptions.parse({"path": "a.db", **option_texts(chosen)}).selection == chosen


def test_the_options_of_requests_go_into_the_address_of_the_node():
    given = {"path": "http://127.0.0.1:8645?peerAddr=/dns4/a", "pageSize": "20", "maxConcurrentRequests": "2"}
    uri = SourceOptions.parse(given).uri
    assert uri == f"{given['path']}&pageSize=20&maxConcurrentRequests=2"
    assert request_options(uri) == {"pageSize": 20, "maxConcurrentRequests": 2}
    assert SourceOptions.parse({"path": "http://a", "requestTimeoutMs": "9"}).uri == "http://a?requestTimeoutMs=9"


def test_every_option_is_in_the_table_of_the_documentation():
    documented = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
    table = documented.partition("### Options of the source")[2].partition("\n### ")[0]
    named = re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
    assert named == list(OPTION_NAMES)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2026-01-31", 1_769_817_600 * SECOND, 1_769_817_600 * SECOND + 999_999),
        ("2026-01-31T10:55", 1_769_856_900 * SECOND, 1_769_856_900 * SECOND + 999_999),
        ("2026-01-31T10:55:00Z", 1_769_856_900 * SECOND, 1_769_856_900 * SECOND + 999_999),
        ("2026-01-31T12:55:00+02:00", 1_769_856_900 * SECOND, 1_769_856_900 * SECOND + 999_999),
        ("2026-01-31 10:55:00.25", 1_769_856_900 * SECOND + 250_000_000, 1_769_856_900 * SECOND + 250_999_999),
        ("2026-01-31T10:55:00.000000001Z", 1_769_856_900 * SECOND + 1, 1_769_856_900 * SECOND + 1),
        ("1769856900000", 1_769_856_900 * SECOND, 1_769_856_900 * SECOND + 999_999),
        ("0", 0, 999_999),
    ],
)
def test_times_are_iso_texts_or_milliseconds_and_the_last_one_is_whole(text, first, last):
    assert (first_ns(text, "--since"), last_ns(text, "--until")) == (first, last)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("-1", "-1 is negative: write a time before 1970 as ISO text"),
        ("1760000400", "1760000400 milliseconds is in 1970: of seconds write 1760000400000"),
        ("1760000400000000", "after the year 2262; of microseconds leave the last three digits out"),
        ("1760000400000000000", "after the year 2262; of nanoseconds leave the last six digits out"),
    ],
)
def test_a_number_of_another_unit_is_refused_and_the_right_one_named(text, why):
    for read in (first_ns, last_ns):
        with pytest.raises(ConfigurationError, match=why):
            read(text, "--since")


@given(st.integers(-(2**62), 2**62))
def test_each_nanosecond_has_a_text(time_ns):
    assert first_ns(iso(time_ns), "a time") == last_ns(iso(time_ns), "a time") == time_ns


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_refused(text):
    try:
        earliest = first_ns(text, "--since")
    except ConfigurationError:
        with pytest.raises(ConfigurationError, match="--since is "):
            last_ns(text, "--since")
    else:
        assert earliest <= last_ns(text, "--since")


def test_without_options_everything_is_read_from_the_beginning():
    options = SourceOptions.parse({"path": "a.db"})
    assert (options.starting, options.fail_on_data_loss) == ("earliest", True)
    assert options.settle_ns == DEFAULT_SETTLE_MS * 1_000_000
    assert options.max_offsets_per_trigger is options.min_partitions is options.selection.through is None


def test_a_place_survives_as_an_offset():
    assert place_of(offset_of(PLACE)) == PLACE
    assert place_of({"timestamp": 5}) == ArchiveCursor(5, b"")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "needs a path or a URI"),
        ({"contentTopic": "/a/1/b/proto"}, "has no option contenttopic; it has path"),
        ({"since": "yesterday"}, "since is a time such as 2026-"),
        (
            {"since": "1760000000000000000"},
            "since is milliseconds since 1970 .* of nanoseconds",
        ),
        (
            {"since": "2", "until": "1"},
            "since 2 is after until 1, which sel",
        ),
        ({"topics": " , "}, "topics names nothing and selects nothing; leave it out"),
        ({"channels": "[]"}, "channels names nothing and selects nothing"),
        ({"channels": '["team"'}, r"channels is a JSON list of texts .* or a text with commas, not '\[\"team\"': "),
        ({"channels": "[7]"}, "channels is a JSON list of texts"),
        ({"topicsPattern": ""}, "topicsPattern is empty and selects nothing"),
        ({"topicsPattern": "/a/("}, r"topicsPattern is a regular expression \(RE2\) .*, not '/a/\(': .*missing"),
        ({"topicsPattern": "a)|(b"}, "topicsPattern is a regular expression"),
        ({"topicsPattern": "/a", "topics": "/b"}, "topicsPattern and a list of topics both choose"),
        ({"pubsubTopic": ""}, "pubsubTopic is empty and selects nothing"),
        ({"partitions": "0"}, "partitions must be at least 1"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger must be at least 1"),
        ({"minOffsetsPerTrigger": "0"}, "minOffsetsPerTrigger must be at least 1"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger 9 is above .* 5; lower it"),
        ({"maxTriggerDelay": "1m"}, "maxTriggerDelay is the longest wait for minOffsetsPerTrigger; give both"),
        ({"maxTriggerDelay": "soon", "minOffsetsPerTrigger": "1"}, "maxTriggerDelay is a length of time"),
        ({"pageSize": "10"}, r"pageSize is for a node \(http:, https:\); a.db is none"),
        ({"settleMs": "-1"}, "settleMs is a length of time .*, not '-1'"),
        ({"settleMs": "P"}, "settleMs is a length of time .*, not 'P'"),
        ({"settleMs": "P300000D"}, "settleMs is a length of time of at most 9,223,372,036,854 ms, not 'P300000D'"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss must be true or false"),
        ({"paths": "b.db"}, "path and paths both name archives"),
        ({"label": " "}, "label is empty and names no store"),
        (
            {"startingOffsets": "newest"},
            "startingOffsets is 'earliest', 'latest' or an offset such as .*, not 'newest'",
        ),
        ({"startingOffsets": "[]"}, "is no offset; expected one like"),
        ({"startingOffsets": '{"timestamp": 1.5}'}, "is no offset"),
        ({"startingOffsets": '{"timestamp": 9223372036854775808}'}, "is no offset"),
        ({"startingOffsets": '{"timestamp": 1, "hash": "zz"}'}, "is no offset"),
        ({"startingOffsets": '{"timestamp": 1, "hash": 7}'}, "is no offset"),
        ({"startingOffsets": '{"timestamp": 1, "hsah": ""}'}, "is no offset"),
        ({"endingOffsets": "earliest"}, "endingOffsets is 'latest' or an offset"),
        (
            {"startingOffsets": '{"timestamp": 2}', "endingOffsets": '{"timestamp": 1}'},
            "startingOffsets is behind endingOffsets, which selects nothing; exchange them",
        ),
    ],
)
def test_what_cannot_work_is_named(options, why):
    with pytest.raises(ConfigurationError, match=why):
        SourceOptions.parse({"path": "a.db", **options} if options else {})


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        *[("0", 0), ("250", 250), ("PT10S", 10_000), ("pt0.5s", 500), ("P1DT1H1M1.25S", 90_061_250)],
        *[("PT90M", 5_400_000), ("15m", 900_000), ("2 s", 2_000), ("1D", 86_400_000), ("7ms", 7)],
    ],
)
def test_a_length_of_time_is_milliseconds_or_iso_text(text, expected_ms):
    assert duration_ms(text, "it") == expected_ms


@given(st.text(alphabet="PTDHMS0123456789.,-+ ", max_size=12))
def test_any_text_is_a_length_of_time_or_refused(text):
    try:
        found_ms = duration_ms(text, "it")
    except ConfigurationError:
        return
    assert found_ms >= 0
