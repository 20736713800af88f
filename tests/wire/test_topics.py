import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError
from fairway.wire.topics import ContentTopic, StaticShard, pubsub_topic, shard_of


def test_the_example_of_the_specification_falls_into_shard_0_with_and_without_its_generation():
    assert shard_of("/myapp/1/mytopic/cbor", 8) == 0
    assert shard_of("/0/myapp/1/mytopic/cbor", 8) == 0
    assert shard_of(ContentTopic.parse("/0/myapp/1/mytopic/cbor"), 8) == 0


def test_a_content_topic_parses_into_its_parts():
    assert ContentTopic.parse("/0/toychat/2/huilong/proto") == ContentTopic(
        generation=0, application="toychat", version="2", name="huilong", encoding="proto"
    )
    assert ContentTopic.parse("/toychat/2/huilong/proto").generation is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "////",
        "/a/b/c",
        "a/b/c/d",
        "/a/b/c/d/",
        "/a//c/d",
        "//a/b/c/d",
        "/x/a/b/c/d",
        "/-1/a/b/c/d",
        "/00/a/b/c/d",
        "/\u0661/a/b/c/d",
        "/99999999999/a/b/c/d",
        "/0/a/b/c/d/e",
    ],
)
def test_an_invalid_content_topic_raises_an_error_with_the_expected_form(text):
    with pytest.raises(ConfigurationError) as caught:
        ContentTopic.parse(text)
    assert repr(text) in str(caught.value)
    assert "/application/version/name/encoding" in str(caught.value)


def test_a_generation_that_is_not_defined_yet_has_no_shard():
    with pytest.raises(ConfigurationError, match="generation 1"):
        shard_of("/1/myapp/1/mytopic/cbor", 8)


def test_a_topic_that_is_not_unicode_has_no_shard():
    with pytest.raises(ConfigurationError, match="not Unicode"):
        shard_of("/\ud800/1/mytopic/cbor", 8)


@pytest.mark.parametrize("shard_count", [0, -1, 1_025])
def test_a_cluster_has_1_to_1024_shards(shard_count):
    with pytest.raises(ConfigurationError, match=f"1..1024, not {shard_count}"):
        shard_of("/myapp/1/mytopic/cbor", shard_count)


@given(st.integers(0, 65_535), st.integers(0, 1_023))
def test_the_pubsub_topic_of_any_shard_parses_back(cluster_id, shard):
    topic = pubsub_topic(cluster_id, shard)
    assert topic == f"/waku/2/rs/{cluster_id}/{shard}"
    assert StaticShard.parse(topic) == StaticShard(cluster_id=cluster_id, shard=shard)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/waku/2/default-waku/proto",
        "/waku/2/rs/1",
        "/waku/2/rs/1/2/",
        "/waku/2/rs/1/2/3",
        "waku/2/rs/1/2",
        "/waku/2/rs/01/2",
        "/waku/2/rs/1/+2",
        "/waku/2/rs/1/ 2",
        "/waku/2/rs/1/-2",
        "/waku/2/rs//2",
        "/waku/2/rs/1/\u00b2",
        "/waku/2/rs/1/99999999999",
    ],
)
def test_an_invalid_pubsub_topic_raises_an_error_with_the_expected_form(text):
    with pytest.raises(ConfigurationError) as caught:
        StaticShard.parse(text)
    assert repr(text) in str(caught.value)
    assert "expected /waku/2/rs/cluster/shard" in str(caught.value)


@pytest.mark.parametrize("topic", ["/waku/2/rs/65536/0", "/waku/2/rs/0/1024"])
def test_a_cluster_or_shard_that_does_not_exist_is_refused(topic):
    with pytest.raises(ConfigurationError, match="must lie in 0"):
        StaticShard.parse(topic)
