"""Every operation of the REST API with parameters and bodies of the wrong kind: an answer, never a failure of ours."""

from __future__ import annotations

import json
import logging
import random
import re
from urllib.parse import quote, urlencode

from fairway.service.rest.openapi import openapi_document

OPERATIONS = [
    (path, verb, operation)
    for path, verbs in openapi_document("1")["paths"].items()
    for verb, operation in verbs.items()
]
REFUSED = {400, 403, 404, 408, 412, 413, 420, 421, 429}
TEXTS = ["", "x", "0", "-1", "9" * 40, "true", "null", "/", "/a/1/b/c", "0x" + "00" * 32, "\x00", "é,ü"]


def value(rng, depth=0):
    kinds = [None, True, 0, -1, 2**70, 1.5, rng.choice(TEXTS), "A" * rng.choice([1, 5_000])]
    if depth < 3:
        names = ["message", "payload", "contentTopic", "requestId", "contentFilters", "pubsubTopic", "timestamp", "x"]
        kinds.append([value(rng, depth + 1) for _ in range(rng.randrange(4))])
        kinds.append({rng.choice(names): value(rng, depth + 1) for _ in range(rng.randrange(5))})
        kinds.append({"payload": rng.choice(TEXTS), "contentTopic": rng.choice(TEXTS)})
    return rng.choice(kinds)


def request(rng, path, operation):
    path = re.sub(r"\{\w+\}", lambda _: quote(rng.choice(TEXTS[1:]), safe=""), path)
    declared = [p["name"] for p in operation.get("parameters", ()) if p["in"] == "query"]
    asked = {name: rng.choice(TEXTS) for name in declared if rng.random() < 0.3}
    body = json.dumps(value(rng)).encode()
    if rng.random() < 0.2:
        body = bytes(rng.randrange(256) for _ in range(rng.randrange(50)))
    return f"{path}?{urlencode(asked)}" if asked else path, body


def test_random_requests_are_answered_without_an_internal_error(rest, caplog):
    seed = 20_240_611
    rng = random.Random(seed)

    async def work():
        async with rest.serving() as (_, server):
            for number in range(400):
                path, verb, operation = OPERATIONS[number % len(OPERATIONS)]
                asked, body = request(rng, path, operation)
                if asked.startswith("/events?") and "contentTopics" in asked:
                    continue  # a stream, which does not end
                sent = body if "requestBody" in operation else None
                answer = await rest.call(server, verb.upper(), asked, sent)
                assert answer.status == 200 or answer.status in REFUSED, (seed, number, verb, asked, body, answer)
            assert (await rest.call(server, "GET", "/health")).json["nodeHealth"] == "READY"

    with caplog.at_level(logging.WARNING):
        rest.run(work())
    assert caplog.records == []
