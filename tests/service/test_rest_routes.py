"""The OpenAPI document is what is served: every operation in it answers, and the page about it needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from urllib.parse import quote

import pytest

from fairway.service.rest.openapi import openapi_document

PATHS = openapi_document("1")["paths"]
OPERATIONS = [(path, verb, operation) for path, verbs in PATHS.items() for verb, operation in verbs.items()]


def test_every_schema_that_is_named_exists_and_every_one_that_exists_is_named():
    named = set(re.findall(r"#/components/schemas/(\w+)", repr(openapi_document("1"))))
    assert named == set(openapi_document("1")["components"]["schemas"])


async def test_an_empty_request_is_answered_with_a_status_that_is_documented(rest):
    async with rest.serving() as (_, server):
        for path, verb, operation in OPERATIONS:
            answer = await rest.call(server, verb.upper(), re.sub(r"\{\w+\}", "x", path))
            assert str(answer.status) in operation["responses"], (verb, path, answer.text)
            documented = operation["responses"][str(answer.status)]["content"]
            assert answer.headers["content-type"].partition(";")[0] in documented, (verb, path)


async def test_the_page_loads_the_document_alone(rest):
    async with rest.serving() as (_, server):
        page = await rest.call(server, "GET", "/docs")
        assert page.headers["content-type"].startswith("text/html")
        assert re.findall(r'(?:src|href)="([^"]*)"', page.text) == ["openapi.json", "./", "openapi.json"]
        document = (await rest.call(server, "GET", "/openapi.json")).json
        assert document == openapi_document(document["info"]["version"])
        assert document["openapi"] == "3.1.0"


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_a_page_runs_its_own_script_and_style_alone_and_is_in_no_frame(rest, path):
    async with rest.serving() as (_, server):
        page = await rest.call(server, "GET", path)
        policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
        for kind in ("script", "style"):
            (text,) = re.findall(rf"<{kind}>(.*?)</{kind}>", page.text, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert policy.pop(f"{kind}-src") == f"'sha256-{digest}'"
        assert policy == {
            "default-src": "'none'",
            "connect-src": "'self'",
            "base-uri": "'none'",
            "form-action": "'none'",
            "frame-ancestors": "'none'",
        }
        assert page.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page.text)
        assert "innerHTML" not in page.text


async def test_a_head_request_removes_no_messages_and_opens_no_stream(rest):
    fetched = [
        f"/relay/v1/messages/{quote(rest.shard, safe='')}",
        f"/relay/v1/auto/messages/{quote(rest.topic, safe='')}",
        f"/filter/v2/messages/{quote(rest.topic, safe='')}",
        f"/filter/v2/messages/{quote(rest.shard, safe='')}/{quote(rest.topic, safe='')}",
    ]
    async with rest.serving() as (_, server):
        await rest.call(server, "POST", "/relay/v1/auto/subscriptions", [rest.topic])
        asked = {"requestId": "1", "contentFilters": [rest.topic]}
        await rest.call(server, "POST", "/filter/v2/subscriptions", asked)
        for path in fetched:
            await rest.publish(server)
            answer = await rest.call(server, "HEAD", path)
            assert (answer.status, answer.headers["allow"]) == (405, "GET")
            assert len((await rest.call(server, "GET", path)).json) >= 1
        assert (await rest.call(server, "HEAD", f"/events?contentTopics={rest.topic}")).status == 405
        assert server.context.event_streams == 0
        assert (await rest.call(server, "HEAD", "/health")).status == 200


async def test_no_cache_may_store_an_answer(rest):
    async with rest.serving() as (_, server):
        for path, verb, operation in OPERATIONS:
            if verb == "get" and operation["tags"] != ["docs"]:
                answer = await rest.call(server, "GET", re.sub(r"\{\w+\}", "x", path))
                assert answer.headers["cache-control"] == "no-store", path
