"""A simulated world as an archive: what a store would hold of it, and beside it what in fact happened.

The archive is that of a nwaku store node (`NwakuArchive`), so whatever reads archives can be held against the truth:
one JSON object that says who sent what, what was delivered to whom in which order, and what was declared missing.

Invariant: the archive holds each WakuMessage that the world's store took, under its hash and its own timestamp, and
nothing else; ephemeral messages and those that the store missed (`SimulationPlan.store_gaps`) are not in it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fairway.errors import ConfigurationError
from fairway.simulation.ledger import Ledger
from fairway.simulation.plan import replay_command
from fairway.simulation.runner import Run
from fairway.storage.nwaku_archive import NwakuArchive


def truth_path(archive: Path) -> Path:
    """Return where the truth beside an archive is kept: its name, followed by ``.truth.json``."""
    return archive.with_name(f"{archive.name}.truth.json")


def require_new(archive: Path) -> None:
    """Raise `ConfigurationError` unless an archive and its truth can be written as new files."""
    if not archive.parent.is_dir():
        raise ConfigurationError(f"{archive}: there is no folder {archive.parent}; make it first")
    for path in (archive, truth_path(archive)):
        if path.exists():
            raise ConfigurationError(f"{path} exists; give a new name, for one archive holds one world")


def write_archive(run: Run, archive: Path) -> int:
    """Write what the store of a world that ran holds, and the truth beside it; return how many messages that are.

    Raises `ConfigurationError` if one of the files exists or cannot be written.
    """
    require_new(archive)
    count = 0
    with NwakuArchive(archive) as writer:
        for publication in run.stored:
            count += writer.append(publication.pubsub_topic, publication.message, publication.message_hash)
    truth_path(archive).write_text(json.dumps({"archived": count, **truth_of(run)}, indent=1) + "\n", encoding="utf-8")
    return count


def truth_of(run: Run) -> dict[str, Any]:
    """Return what happened in a world, as plain values.

    ``sent``: every accepted message, numbered from 0 in the order of sending, with the SDS ids of its segments;
    ``delivered``: for each participant the numbers of the messages that it was delivered, in that order; ``missing``:
    for each participant what it was told that it will never have. Times are virtual, in milliseconds since the Unix
    epoch.
    """
    ledger = run.ledger
    return {
        "channel_id": run.channel_id,
        "profile": run.plan.profile.value,
        "replay": replay_command(run.plan),
        "trace_hash": ledger.trace_hash(),
        "sent": [
            {
                "number": sent.number,
                "sender_id": sent.sender,
                "message_id": sent.payload_id,
                "size_bytes": sent.size_bytes,
                "at_ms": sent.at_ms,
                "sds_ids": [sds_id for sds_id, is_parity in sent.sds_ids.items() if not is_parity],
                "parity_ids": [sds_id for sds_id, is_parity in sent.sds_ids.items() if is_parity],
            }
            for sent in ledger.sent
        ],
        "delivered": {name: list(presence.order) for name, presence in ledger.presences.items()},
        "missing": {name: _losses_of(ledger, name) for name in ledger.presences},
        "ephemeral_ids": sorted(ledger.ephemeral_ids),
    }


def _losses_of(ledger: Ledger, name: str) -> list[dict[str, Any]]:
    return [
        {"id": loss.what, "reason": loss.reason.value, "sender_id": loss.sender, "at_ms": loss.at_ms}
        for loss in ledger.losses
        if loss.participant == name
    ]
