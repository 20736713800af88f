"""Options, output and exit codes of the commands around a channel, on a network inside this process."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fairway.cli import app
from fairway.errors import ConfigurationError, EmptyPayloadError, MessageTooLargeError, StorageError
from patience import PATIENCE_S

Run = Callable[..., Any]
SMALL = '{"segmentation": {"max_message_size_bytes": 7}}'


@pytest.fixture
def fairway() -> Run:
    """Return what runs a command on a network of the test's own."""
    environment = {
        "FAIRWAY_NODE": f"local:{uuid.uuid4()}",
        "FAIRWAY_CHANNEL": "team",
        "FAIRWAY_SENDER": "alice",
        "COLUMNS": "200",
    }

    def run(*words: str, typed: bytes | None = None, **changed: str | None) -> Any:
        return CliRunner().invoke(app, list(words), input=typed, env={**environment, **changed})

    return run


def lines_of(result: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def sent(fairway: Run, *words: str, **more: Any) -> Any:
    result = fairway("send", "--wait", "sent", *words, **more)
    assert result.exit_code == 0, result.output
    return result


def test_words_are_one_message_and_a_later_tail_reads_it_from_the_store(fairway: Run):
    output = sent(fairway, "hello", "to", "you").output
    assert output.startswith("sent ")
    assert "stays" not in output
    result = fairway("tail", "--sender", "bob", "--count", "1", "--linger", "0")
    assert result.exit_code == 0
    assert "alice 12 bytes  hello to you" in result.output


def test_an_unacknowledged_send_says_that_it_continues_with_the_store(fairway: Run, tmp_path: Path):
    store = str(tmp_path / "alice.db")
    output = sent(fairway, "hello", "--store", store).output
    assert output.startswith("sent ")
    assert f"it stays in {store}, and every command with that store continues to send it until it is" in output
    output = fairway("send", "x", "--wait", "none", "--store", store).output
    assert re.match(r"accepted [0-9a-f]{12} \(1 byte\)\n", output)


@pytest.mark.parametrize("kept", [True, False], ids=["store", "memory"])
def test_an_interrupted_send_says_whether_the_message_stays_in_the_store(tmp_path: Path, kept: bool):
    store = ["--store", str(tmp_path / "alice.db")] if kept else []
    words = ["send", "--node", "local:", "--channel", "team", "--sender", "alice", *store, "hello"]
    program = [sys.executable, "-c", "from fairway.cli import main; main()", *words, "--json"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            while "message-sent" not in process.stdout.readline():
                continue
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 130
    end = (
        f"it stays in {store[1]}, and every command with that store"
        if kept
        else "without --store its sending ends here"
    )
    assert re.fullmatch(rf"interrupted: [0-9a-f]{{12}} \(5 bytes\) was accepted; {re.escape(end)}.*\n", errors)


def test_a_file_and_stdin_are_sent_and_saved(fairway: Run, tmp_path: Path):
    (tmp_path / "file").write_bytes(b"\x00\x01\x02")
    sent(fairway, "--file", str(tmp_path / "file"), "--sender", "carol")
    sent(fairway, typed=b"from a pipe", FAIRWAY_SENDER="dave")
    result = fairway(
        "tail", "--sender", "bob", "--count", "2", "--json", "--save", str(tmp_path / "in"), "--linger", "0"
    )
    received = {line["sender_id"]: line for line in lines_of(result)}
    assert Path(received["carol"]["saved"]) == tmp_path / "in" / "file"
    assert (tmp_path / "in" / "file").read_bytes() == b"\x00\x01\x02"
    assert received["carol"]["file"] | {"path": ""} == {
        "type": "FileReceived",
        "sender_id": "carol",
        "message_id": received["carol"]["message_id"],
        "name": "file",
        "media_type": "application/octet-stream",
        "size_bytes": 3,
        "path": "",
        "redelivered": False,
    }
    assert Path(received["dave"]["saved"]).read_bytes() == b"from a pipe"


def test_short_texts_are_shown_and_other_payloads_are_saved(fairway: Run, tmp_path: Path):
    for name, content in (("long.txt", b"x" * 5_000), ("raw.bin", b"\xff\x00")):
        (tmp_path / name).write_bytes(content)
        sent(fairway, "--file", str(tmp_path / name), "--raw")
    sent(fairway, "hello", "to", "you")
    result = fairway("tail", "--sender", "bob", "--count", "3", "--save", str(tmp_path / "in"), "--linger", "0")
    assert "hello to you" in result.output
    saved = sorted(path.read_bytes() for path in (tmp_path / "in").iterdir() if path.is_file())
    assert saved == [b"x" * 5_000, b"\xff\x00"]


def test_an_unsaved_file_is_shown_by_name_and_type(fairway: Run, tmp_path: Path):
    (tmp_path / "tide.txt").write_bytes(b"low water at noon")
    sent(fairway, "--file", str(tmp_path / "tide.txt"))
    output = fairway("tail", "--sender", "bob", "--count", "1", "--linger", "0").output
    assert "tide.txt (text/plain) of 17 bytes; --save FOLDER saves files" in output


def test_a_file_too_large_for_the_receiver_is_refused_and_the_option_is_named(fairway: Run, tmp_path: Path):
    (tmp_path / "note").write_bytes(b"low water at noon")
    sent(fairway, "--file", str(tmp_path / "note"))
    words = ["--save", str(tmp_path / "in"), "--max-file-bytes", "16", "--timeout", "0.5", "--linger", "0"]
    result = fairway("tail", "--sender", "bob", *words)
    assert "17 bytes, at most 16 are accepted (max_file_bytes, --max-file-bytes)" in result.stderr
    assert [path.name for path in (tmp_path / "in").iterdir()] == [".fairway"]


def test_a_file_without_acknowledgement_in_time_says_how_to_continue(fairway: Run, tmp_path: Path):
    small = {"segmentation": {"segment_size_bytes": 1_024, "max_message_size_bytes": 10_240}}
    (tmp_path / "chart.png").write_bytes(bytes(50_000))
    words = ["--file", str(tmp_path / "chart.png"), "--timeout", "0.3", "--options", json.dumps(small)]
    result = fairway("send", *words)
    assert result.exit_code == 1
    assert re.search(r"chart.png \(50,000 bytes in 6 messages, .*\): no progress within 0.3 s", result.output)
    assert "0 of 6 messages acknowledged; without --store its sending ends here" in result.output
    store = str(tmp_path / "alice.db")
    assert f"the same command with {store} continues" in fairway("send", *words, "--store", store).output
    told = lines_of(fairway("send", *words, "--store", store, "--json"))[-1]
    assert (told["reached"], told["failed"], told["earlier_open"]) == (False, False, 0)
    assert told["file"]["total_messages"] == 6


def test_a_file_in_parts_with_wait_none_stays_in_the_store(fairway: Run, tmp_path: Path):
    small = {"segmentation": {"segment_size_bytes": 1_024, "max_message_size_bytes": 10_240}}
    (tmp_path / "options.json").write_text(json.dumps(small))
    (tmp_path / "chart.png").write_bytes(bytes(50_000))
    words = ["--file", str(tmp_path / "chart.png"), "--options", str(tmp_path / "options.json")]
    result = fairway("send", *words, "--wait", "none")
    assert isinstance(result.exception, ConfigurationError)
    store = str(tmp_path / "alice.db")
    result = fairway("send", *words, "--wait", "none", "--store", store)
    assert result.exit_code == 0, result.output
    assert "accepted chart.png (50,000 bytes in 6 messages, " in result.output
    assert f"it stays in {store}" in result.output
    result = fairway("send", *words, "--wait", "sent", "--store", store)
    assert result.exit_code == 0, result.output
    result = fairway("tail", "--sender", "bob", "--count", "1", "--linger", "0", "--save", str(tmp_path / "in"))
    assert (tmp_path / "in" / "chart.png").read_bytes() == bytes(50_000), result.output


def test_a_file_acknowledged_during_another_command_is_not_sent_again(fairway: Run, tmp_path: Path):
    (tmp_path / "note").write_bytes(b"low water at noon")
    words = ["--file", str(tmp_path / "note"), "--store", str(tmp_path / "alice.db")]
    assert fairway("send", *words, "--timeout", "0.3").exit_code == 1
    assert "17 bytes" in fairway("tail", "--sender", "bob", "--count", "1").output
    fairway("tail", "--store", str(tmp_path / "alice.db"), "--timeout", "1")
    result = fairway("send", *words)
    assert result.exit_code == 0, result.output
    assert "to bob\nnothing was sent now; if you send it once more, it is a new file" in result.output


def test_a_send_without_acknowledgement_in_time_has_exit_code_1_and_says_what_continues(fairway: Run, tmp_path: Path):
    store = str(tmp_path / "alice.db")
    result = fairway("send", "--timeout", "0.2", "--store", store, "hello")
    assert result.exit_code == 1
    assert "not acknowledged as asked within 0.2 s" in result.output
    assert f"it stays in {store}" in result.output
    assert "give --store PATH" in fairway("send", "--timeout", "0.2", "hello").output


def test_a_tail_with_too_few_messages_has_exit_code_1(fairway: Run):
    assert fairway("tail", "--count", "1", "--timeout", "0.2").exit_code == 1
    assert fairway("tail", "--timeout", "0.2").exit_code == 0


def test_all_events_are_printed_with_the_option_events(fairway: Run, tmp_path: Path):
    store = str(tmp_path / "alice.db")
    quick = ("--options", '{"retry_interval_ms": 50}')
    sent(fairway, "--store", store, *quick, "hello")
    # It is repeated within a moment, or within some more on a slow machine.
    for patience_s in (0.3, 3, PATIENCE_S):
        told = fairway("tail", "--store", store, "--events", "--timeout", str(patience_s), *quick)
        if any(line.get("attempt") == 1 for line in lines_of(told)):
            break
    assert {"sending-message", "message-sent"} <= {line["event"] for line in lines_of(told)}


def test_a_key_comes_from_a_file_or_from_the_environment(fairway: Run, tmp_path: Path):
    file = tmp_path / "key"
    file.write_text("ab" * 32 + "\n")
    sent(fairway, "secret", FAIRWAY_KEY="ab" * 32)
    assert fairway("tail", "--sender", "eve", "--timeout", "0.3", "--count", "1").exit_code == 1
    result = fairway("tail", "--sender", "bob", "--count", "1", "--linger", "0", "--key-file", str(file))
    assert "secret" in result.output


def test_another_profile_cannot_read_the_messages(fairway: Run):
    sent(fairway, "--profile", "logos", "hello")
    assert fairway("tail", "--sender", "eve", "--timeout", "0.3", "--count", "1").exit_code == 1
    result = fairway("tail", "--sender", "bob", "--count", "1", "--linger", "0", "--profile", "logos")
    assert "hello" in result.output


@pytest.mark.parametrize(
    ("words", "error", "told"),
    [
        (["send", "--node", "", "x"], ConfigurationError, "fairway node"),
        (["send", "--channel", "", "x"], ConfigurationError, "--channel is missing"),
        (["tail", "--sender", ""], ConfigurationError, "--sender is missing"),
        (["send", "--node", "smoke:signals", "x"], ConfigurationError, "smoke:signals"),
        (["send", "--topic", "no topic", "x"], ConfigurationError, "content topic"),
        (["send", "--key-file", "/no/such/file", "x"], ConfigurationError, "openssl rand"),
        (["send", "--options", "nowhere.json", "x"], ConfigurationError, "nowhere.json"),
        (["send", "--file", "nowhere", "x"], ConfigurationError, "not both"),
        (["send", "--file", "nowhere"], ConfigurationError, "nowhere cannot be read"),
        (
            ["send", "--options", SMALL, "too long"],
            MessageTooLargeError,
            "raise max_message_size_bytes",
        ),
        (["send", "--raw", "x"], ConfigurationError, "--file PATH"),
        (["send", "--file", __file__, "--raw", "--options", SMALL], MessageTooLargeError, "sends large files in parts"),
        (["send", "--wait", "none", "x"], ConfigurationError, "--store"),
        (["send", "--by", "alice", "x"], ConfigurationError, "alice"),
        (["send"], EmptyPayloadError, "at least one byte"),
        (["chat", "--sender", ""], ConfigurationError, "--sender is missing"),
        (["participant", "--channel", ""], ConfigurationError, "--channel is missing"),
        (["trace", "abcd", "--store", "nowhere.db"], StorageError, "there is no store"),
        (["backup", "nowhere.db", "copy.db"], StorageError, "give the path of a store"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_bad_input_is_an_error_that_says_what_to_do(fairway: Run, words: list[str], error: type[Exception], told: str):
    result = fairway(*words, typed=b"")
    assert isinstance(result.exception, error)
    assert told in str(result.exception)


@pytest.mark.parametrize(
    "words", [["send", "--wait", "forever", "x"], ["tail", "--count", "0"], ["trace"], ["send", "--count", "x", "x"]]
)
def test_a_command_line_that_cannot_be_understood_has_exit_code_2(fairway: Run, words: list[str]):
    assert fairway(*words).exit_code == 2


def test_a_trace_shows_a_table_or_says_that_the_message_is_unknown(fairway: Run, tmp_path: Path):
    store = str(tmp_path / "alice.db")
    report = lines_of(sent(fairway, "--store", store, "--json", "hello"))[-1]
    result = fairway("trace", report["message_id"][:8], "--store", store)
    assert result.exit_code == 0
    for words in (report["message_id"], report["request_id"], "sent by alice", "transmission starts", "open so far"):
        assert words in result.output
    told = json.loads(fairway("trace", report["request_id"], "--store", store, "--json").output)
    assert told["known"] is True
    assert [send["outcome"] for send in told["sends"]] == ["open"]
    unknown = fairway("trace", "f" * 64, "--store", store)
    assert unknown.exit_code == 1
    assert "no record of" in unknown.output
    assert json.loads(fairway("trace", "f" * 64, "--store", store, "--json").output) == {"known": False}


def test_a_backup_of_a_store_knows_its_messages(fairway: Run, tmp_path: Path):
    store, copy = str(tmp_path / "alice.db"), str(tmp_path / "copy.db")
    report = lines_of(sent(fairway, "--store", store, "--json", "hello"))[-1]
    result = fairway("backup", store, copy)
    assert result.exit_code == 0
    assert result.output.startswith(f"{copy}: ")
    assert fairway("trace", report["message_id"], "--store", copy).exit_code == 0


def test_a_long_trace_is_cut_in_the_middle_without_the_option_all(fairway: Run, tmp_path: Path):
    store = str(tmp_path / "alice.db")
    (tmp_path / "options.json").write_text(json.dumps({"segmentation": {"segment_size_bytes": 100}}))
    words = ["--store", store, "--json", "--options", str(tmp_path / "options.json"), "x" * 3_000]
    report = lines_of(sent(fairway, *words))[-1]
    short = fairway("trace", report["message_id"], "--store", store).output
    assert "more steps, see --all" in short
    whole = fairway("trace", report["message_id"], "--store", store, "--all").output
    assert "more steps" not in whole
    assert len(whole.splitlines()) > len(short.splitlines())
