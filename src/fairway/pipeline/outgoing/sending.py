"""`send`: sends a batch: payloads through all outgoing stages into a folder of tables, and from there through a node.

The tables are complete before the first message is sent, so that a start after a crash sends the rest of the same
messages. The folder is a `RunFolder`; beside its tables it has ``receipts.db``, the messages that were sent
(`ReceiptLedger`). After the first message was sent, the folder accepts no other batch, because that could send the same
payloads again in other messages.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from os import PathLike
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from fairway.errors import ConfigurationError
from fairway.nodes.connecting import connect
from fairway.pipeline.keys import ChannelKeys, digest_of
from fairway.pipeline.location import local_path
from fairway.pipeline.outgoing.dispatching import Dispatch, DispatchProgress
from fairway.pipeline.outgoing.making_tables import TableMaker, scheduled_files, write_receipts
from fairway.pipeline.outgoing.options import KIND, SendOptions
from fairway.pipeline.outgoing.reading import PayloadSource
from fairway.pipeline.outgoing.summary import SendSummary, summary_of
from fairway.pipeline.outgoing.tables import OUTGOING_TABLES
from fairway.pipeline.run.folder import RUN, RunFolder, kind_of, read_run
from fairway.pipeline.run.progress import Progress
from fairway.pipeline.sinks.dispatch import DispatchCounts
from fairway.pipeline.sinks.ledger import ReceiptLedger
from fairway.units import NS_PER_MS

RECEIPTS_FILE: Final = "receipts.db"


def send(
    payloads: str | PathLike[str],
    out: str | PathLike[str],
    *,
    node: str | None,
    options: SendOptions | None = None,
    keys: ChannelKeys | None = None,
    attempts: int = 5,
    longest_wait_s: float | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
    planned: Callable[[SendSummary], None] | None = None,
    dispatching: Callable[[DispatchProgress], None] | None = None,
) -> SendSummary:
    """Send the payloads in a file or folder (`PayloadSource`), or continue with that, and return the summary.

    ``node`` is an address for `fairway.connect`; with None the tables are written and nothing is sent. Each message is
    tried ``attempts`` times before its sender stops. An epoch further off than ``longest_wait_s`` is left to another
    attempt. ``planned`` is called with the schedule before the first message is sent. Uses ``spark`` unchanged, or the
    active session, or a new one while tables are written. Raises `ConfigurationError` for invalid payloads or options
    or an unusable folder, and `NetworkError` if the node cannot be reached.
    """
    options = options or SendOptions()
    if attempts < 1:
        raise ConfigurationError(f"attempts must be at least 1, not {attempts}")
    if options.after is not None:
        local_path(options.after, "--after")
    source = PayloadSource(
        path=local_path(payloads, "--payloads").absolute(),
        channel_id=options.channel_id,
        sender_id=options.sender_id,
        content_topic=options.content_topic,
        max_bytes=options.channel.segmentation.max_message_size_bytes,
    )
    folder = local_path(out, "--out").absolute()
    described = source.described()
    start_ms = _start_ms(folder, options)
    told = options.as_json(start_ms)
    _refuse_another_batch(folder, described, told, keys)
    with closing(RunFolder.open_for(folder, described, told, keys, tables=OUTGOING_TABLES)) as run:
        TableMaker(run, source, options, start_ms, keys).make(spark, progress)
        files = scheduled_files(run)
        with ReceiptLedger(folder / RECEIPTS_FILE) as ledger:
            if planned is not None:
                planned(summary_of(run, ledger, files, DispatchCounts()))
            outcome = DispatchCounts()
            if node is not None:
                outcome = asyncio.run(
                    _dispatch(node, files, ledger, options, attempts, longest_wait_s, dispatching or _nobody_listens)
                )
            write_receipts(run, files, ledger)
            summary = summary_of(run, ledger, files, outcome)
        if summary.is_settled:
            run.finish({"sent": summary.as_json()})
        return summary


async def _dispatch(
    address: str,
    files: Sequence[Path],
    ledger: ReceiptLedger,
    options: SendOptions,
    attempts: int,
    longest_wait_s: float | None,
    tell: Callable[[DispatchProgress], None],
) -> DispatchCounts:
    async with await connect(address) as node:
        try:
            return await Dispatch(
                files=files,
                node=node,
                ledger=ledger,
                rate_limit=options.rate_limit,
                epoch_ms=options.epoch_ms,
                attempts=attempts,
                longest_wait_s=longest_wait_s,
                tell=tell,
            ).run()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from group


def _nobody_listens(progress: DispatchProgress) -> None:
    del progress


def _start_ms(folder: Path, options: SendOptions) -> int:
    if options.start_ms is not None:
        return options.start_ms
    begun = _begun(folder)
    if begun is None:
        return time.time_ns() // NS_PER_MS
    return int(begun["options"]["start_ms"])


def _begun(folder: Path) -> dict[str, Any] | None:
    """Return the description of a batch, None if the folder has none; raise an error for that of another command."""
    if not (folder / RUN).is_file():
        return None
    begun = read_run(folder)
    if (kind := kind_of(begun)) != KIND:
        raise ConfigurationError(f"{folder} holds the tables of 'fairway pipeline {kind}': choose another folder")
    return begun


def _refuse_another_batch(
    folder: Path, described: Sequence[dict[str, Any]], told: dict[str, Any], keys: ChannelKeys | None
) -> None:
    begun = _begun(folder)
    if begun is None or not (folder / RECEIPTS_FILE).is_file():
        return
    changed = [name for name in sorted(told) if begun["options"].get(name) != told[name]]
    changed += ["payloads"] if begun["sources"] != json.loads(json.dumps(described)) else []
    changed += ["keys"] if begun["keys"] != digest_of(keys, begun["salt"]) else []
    if not changed:
        return
    with ReceiptLedger(folder / RECEIPTS_FILE) as ledger:
        if not ledger.may_have_sent():
            ledger.clear()
            return
        raise ConfigurationError(
            f"messages of another batch were sent from {folder} ({', '.join(changed)} differ): what that one carried "
            "would be sent twice. Repeat it with what it was begun with, or give a new batch a folder of its own"
        )
