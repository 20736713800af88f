"""Known answers about Waku's request protocols (light push, filter, store, metadata), as js-waku encodes them.

Each request and response is decoded, compared field by field where the file spells fields out, and encoded again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tests.conformance.cases import Case, MalformedCaseError, case_list, one_case, replay_tables, same
from tests.conformance.report import Check

from fairway.errors import DecodeError
from fairway.units import NS_PER_MS
from fairway.wire import filter as filter_wire
from fairway.wire import lightpush, metadata, store
from fairway.wire.filter import FilterSubscribeRequest, FilterSubscribeResponse, FilterSubscribeType, MessagePush
from fairway.wire.lightpush import LightPushRequest, LightPushResponse
from fairway.wire.metadata import WakuMetadata
from fairway.wire.store import StoreQueryRequest
from fairway.wire.waku_message import encode_waku_message

_NO_CLUSTER: Final = "66/WAKU2-METADATA: a node must tell its cluster, so fairway does not write a record without one"


def check_lightpush(group: Any) -> Iterator[Check]:
    """Check light push: requests and responses of version 3, and the version before."""
    ids = {"v3": lightpush.LIGHTPUSH_PROTOCOL, "v2": lightpush.LIGHTPUSH_V2_PROTOCOL}
    yield from replay_tables(
        "lightpush",
        group,
        {
            "protocol_ids": one_case(lambda case: _same_ids(case, ids), "protocol_ids"),
            "requests_v3": case_list(_push_request, "v3 request "),
            "responses_v3": case_list(_push_response, "v3 response "),
            "v2": case_list(_push_v2, "v2 "),
        },
        prose={"framing", "note"},
    )


def _same_ids(case: Case, own: Mapping[str, str]) -> Iterator[Check]:
    for key in case:
        if key in own:
            yield same(key, case.text(key), own[key])


def _push_request(case: Case) -> Iterator[Check]:
    case.prose("via_PushRpc_same")
    encoded = case.octets("encoded_hex")
    request = LightPushRequest(
        request_id=case.text("requestId"),
        pubsub_topic=case.maybe_text("pubsubTopic"),
        message_bytes=case.octets("message_encoded_hex"),
    )
    yield same("encoded", encoded, lightpush.encode_lightpush_request(request))
    decoded = lightpush.decode_lightpush_request(encoded)
    yield same("decoded", request, decoded)
    yield same("message encoded again", request.message_bytes, encode_waku_message(decoded.message()))


def _push_response(case: Case) -> Iterator[Check]:
    encoded = case.octets("encoded_hex")
    response = _push_response_fields(case.child("fields"))
    yield same("encoded", encoded, lightpush.encode_lightpush_response(response))
    yield same("decoded", response, lightpush.decode_lightpush_response(encoded))
    if "decoded" in case:
        yield same("as js-waku decodes it", response, _push_response_fields(case.child("decoded")))


def _push_response_fields(case: Case) -> LightPushResponse:
    return LightPushResponse(
        request_id=case.text("requestId"),
        status_code=case.integer("statusCode"),
        status_desc=case.maybe_text("statusDesc"),
        relay_peer_count=case.maybe_integer("relayPeerCount"),
    )


def _push_v2(case: Case) -> Iterator[Check]:
    encoded = case.octets("encoded_hex")
    try:
        request = lightpush.decode_push_request_v2(encoded)
    except DecodeError:
        response = lightpush.decode_push_response_v2(encoded)
        yield same("response encoded again", encoded, lightpush.encode_push_response_v2(response))
        return
    yield same("request encoded again", encoded, lightpush.encode_push_request_v2(request))
    yield same("message encoded again", request.message_bytes, encode_waku_message(request.message()))


def check_filter(group: Any) -> Iterator[Check]:
    """Check filter: requests, responses and pushes."""
    ids = {"subscribe": filter_wire.FILTER_SUBSCRIBE_PROTOCOL, "push": filter_wire.FILTER_PUSH_PROTOCOL}
    yield from replay_tables(
        "filter",
        group,
        {
            "protocol_ids": one_case(lambda case: _same_ids(case, ids), "protocol_ids"),
            "enum_in_js": one_case(_filter_types, "enum_in_js"),
            "requests": case_list(_filter_request, "request "),
            "responses": case_list(_filter_response, "response "),
            "push": case_list(_push, "push "),
        },
        prose={"framing", "note"},
    )


def _filter_type(name: str) -> FilterSubscribeType:
    try:
        return FilterSubscribeType[name]
    except KeyError:
        raise MalformedCaseError(f"no filter request has the type {name!r}") from None


def _filter_types(case: Case) -> Iterator[Check]:
    for key in case:
        yield same(key, case.text(key), _filter_type(key).name)


def _filter_request(case: Case) -> Iterator[Check]:
    fields, encoded = case.child("fields"), case.octets("encoded_hex")
    request = FilterSubscribeRequest(
        request_id=fields.text("requestId"),
        filter_subscribe_type=_filter_type(fields.text("filterSubscribeType")),
        pubsub_topic=fields.maybe_text("pubsubTopic"),
        content_topics=tuple(fields.texts("contentTopics")),
    )
    yield same("encoded", encoded, filter_wire.encode_filter_subscribe_request(request))
    yield same("decoded", request, filter_wire.decode_filter_subscribe_request(encoded))


def _filter_response(case: Case) -> Iterator[Check]:
    fields, encoded = case.child("fields"), case.octets("encoded_hex")
    response = FilterSubscribeResponse(
        request_id=fields.text("requestId"),
        status_code=fields.integer("statusCode"),
        status_desc=fields.maybe_text("statusDesc"),
    )
    yield same("encoded", encoded, filter_wire.encode_filter_subscribe_response(response))
    yield same("decoded", response, filter_wire.decode_filter_subscribe_response(encoded))


def _push(case: Case) -> Iterator[Check]:
    encoded = case.octets("encoded_hex")
    push = MessagePush(message_bytes=case.octets("message_encoded_hex"), pubsub_topic=case.maybe_text("pubsubTopic"))
    yield same("encoded", encoded, filter_wire.encode_message_push(push))
    decoded = filter_wire.decode_message_push(encoded)
    yield same("decoded", push, decoded)
    yield same("message encoded again", push.message_bytes, encode_waku_message(decoded.message()))


def check_store(group: Any) -> Iterator[Check]:
    """Check store: queries and the pages that answer them."""
    yield from replay_tables(
        "store",
        group,
        {
            "protocol_id": _same_id(store.STORE_QUERY_PROTOCOL),
            "requests": case_list(_query, "request "),
            "responses": case_list(_page, "response "),
        },
        prose={"framing", "note"},
    )


def _same_id(own: str) -> Callable[[object], Iterator[Check]]:
    return lambda recorded: iter([same("protocol_id", recorded, own)])


def _query(case: Case) -> Iterator[Check]:
    fields, encoded = case.child("fields"), case.octets("encoded_hex")
    query = StoreQueryRequest(
        request_id=fields.text("requestId"),
        include_data=fields.flag("includeData"),
        pubsub_topic=fields.maybe_text("pubsubTopic"),
        content_topics=tuple(fields.texts("contentTopics")),
        time_start_ns=_nanoseconds(fields, "timeStart_ms"),
        time_end_ns=_nanoseconds(fields, "timeEnd_ms"),
        message_hashes=tuple(fields.octet_strings("messageHashes")),
        pagination_cursor=fields.maybe_octets("paginationCursor"),
        pagination_forward=fields.flag("paginationForward"),
        pagination_limit=fields.maybe_integer("paginationLimit"),
    )
    # js-waku names the pubsub topic beside hashes, which 13/WAKU2-STORE forbids: encoded without that check.
    yield same("encoded", encoded, store.encode_store_query_request(query, checked=False))
    yield same("decoded", query, store.decode_store_query_request(encoded))


def _nanoseconds(case: Case, key: str) -> int | None:
    milliseconds = case.maybe_integer(key)
    return None if milliseconds is None else milliseconds * NS_PER_MS


def _page(case: Case) -> Iterator[Check]:
    encoded = case.octets("encoded_hex")
    page = store.decode_store_query_response(encoded)
    yield same("entries that cannot be used", 0, page.malformed_entries)
    yield same("encoded again", encoded, store.encode_store_query_response(page))
    for index, entry in enumerate(page.messages):
        if entry.message_bytes is not None:
            again = encode_waku_message(entry.message())
            yield same(f"message {index} encoded again", entry.message_bytes, again)


def check_metadata(group: Any) -> Iterator[Check]:
    """Check metadata: any number of requests and responses, each under a name that begins so."""
    records = [key for key in group if key.startswith(("request", "response"))] if isinstance(group, Mapping) else []
    yield from replay_tables(
        "metadata",
        group,
        {"protocol_id": _same_id(metadata.METADATA_PROTOCOL)} | {key: one_case(_metadata, key) for key in records},
        prose={"framing", "note"},
    )


def _metadata(case: Case) -> Iterator[Check]:
    encoded = case.octets("encoded_hex")
    record = WakuMetadata(cluster_id=case.maybe_integer("clusterId"), shards=tuple(case.integers("shards")))
    yield same("decoded", record, metadata.decode_metadata(encoded))
    if record.cluster_id is None:
        yield Check("encoded", ok=False, differs_on_purpose=_NO_CLUSTER)
    else:
        yield same("encoded", encoded, metadata.encode_metadata(record, also_packed=False))
