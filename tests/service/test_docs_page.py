"""The page ``/docs`` in a real browser: calls are tried, and shown as curl, which then does the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

import pytest

from browsing import launched, visited
from fairway.service.rest.openapi import CALLS
from nodes_in_threads import NodeInThread

TOPIC = '/it\'s/1/<b onclick=x>room & "quotes"/proto'


@pytest.fixture(scope="module")
def browser():
    with launched() as started:
        yield started


@pytest.fixture(scope="module")
def served():
    with NodeInThread() as served:
        yield served


def call(page: Any, operation: str) -> Any:
    page.locator(f"#{operation} summary").click()
    return page.locator(f"#{operation} form")


def answer(form: Any, status: str) -> Any:
    form.get_by_role("button", name="Send").click()
    form.locator(".status", has_text=status).wait_for()
    return form.locator(".answer pre")


def test_a_call_is_sent_and_its_answer_shown_and_curl_does_the_same(browser, served):
    curl = shutil.which("curl")
    with visited(browser, f"{served.server.url}/docs") as page:
        for operation in ("relay_auto_subscribe", "relay_auto_publish"):
            form = call(page, operation)
            text = form.locator("textarea")
            text.fill(text.input_value().replace('"/myapp/1/room/proto"', json.dumps(TOPIC)))
            assert answer(form, "200").inner_text() == "OK"
        if curl:
            line = page.locator("#relay_auto_publish .curl").inner_text()
            assert subprocess.run(["sh", "-c", f"{line} --silent"], capture_output=True, check=True).stdout == b"OK"
        fetch = call(page, "relay_auto_messages")
        fetch.get_by_label("contentTopic").fill(TOPIC)
        line = fetch.locator(".curl").inner_text()
        shown = answer(fetch, "200").inner_text()
        assert {message["contentTopic"] for message in json.loads(shown)} == {TOPIC}
        assert page.locator("pre b").count() == 0
        if curl:
            again = subprocess.run(["sh", "-c", f"{line} --silent"], capture_output=True, check=True).stdout
            assert json.loads(again) == []  # the form has fetched them


def test_the_page_shows_every_call(browser, served):
    with visited(browser, f"{served.server.url}/docs") as page:
        page.locator("#node_health").wait_for()
        shown = page.locator("details.operation > summary").all_inner_texts()
        assert [text.split()[:2] for text in shown] == [call.route.split() for call in CALLS]


def test_a_stream_of_events_is_shown_until_it_is_stopped(browser, served):
    with visited(browser, f"{served.server.url}/docs", may_complain=True) as page:
        form = call(page, "events_stream")
        form.get_by_label("contentTopics").fill(TOPIC)
        shown = answer(form, "200")
        page.wait_for_function("(pre) => pre.textContent.includes('retry: 1000')", arg=shown.element_handle())
        assert form.locator(".curl").inner_text().startswith("curl -N ")
        form.get_by_role("button", name="Stop").click()
        form.locator(".status", has_text="stopped").wait_for()


def test_a_token_is_sent_and_kept_nowhere_else(browser, served):
    with visited(browser, f"{served.server.url}/docs") as page:
        page.get_by_label("Bearer token").fill("a-secret")
        form = call(page, "node_health")
        with page.expect_request("**/health") as request:
            answer(form, "200")
        assert request.value.headers["authorization"] == "Bearer a-secret"
        line = form.locator(".curl").inner_text()
        assert line.endswith('-H "Authorization: Bearer $FAIRWAY_TOKEN"')
        assert "a-secret" not in page.content()
        assert page.evaluate("localStorage.length + sessionStorage.length + document.cookie.length") == 0
        if curl := shutil.which("curl"):
            shell = {**os.environ, "FAIRWAY_TOKEN": "a-secret"}
            said = subprocess.run(["sh", "-c", f"{line} --silent -v"], capture_output=True, check=True, env=shell)
            assert b"Authorization: Bearer a-secret" in said.stderr, curl
        page.reload()
        assert page.get_by_label("Bearer token").input_value() == ""
