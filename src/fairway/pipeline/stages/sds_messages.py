"""From ``decoded`` to ``sds_messages``: the SDS messages that are not forged, with the number of each copy."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from fairway.pipeline.exchange import Cut, bucketed
from fairway.pipeline.schema import columns_of, exact_ddl
from fairway.pipeline.stages.decoded import CARRIER, READ
from fairway.pipeline.stages.unique_messages import MESSAGE_KEY, honest_messages, sightings_of

SDS_MESSAGES: Final = f"{CARRIER}, {READ}, sightings bigint, sighting int"
"""The table of SDS messages: ``sightings`` counts the copies of the SDS message in the archive, ``sighting`` is the
number of this one, from 1."""

DECODED_INPUT: Final = tuple(name for name in columns_of(exact_ddl(f"{CARRIER}, {READ}")))
"""The columns of ``decoded`` that are read, beside ``status``."""


def sds_messages(decoded: DataFrame) -> DataFrame:
    """Return ``sds_messages`` (`SDS_MESSAGES`): the decodable messages that are not forged.

    One row for each WakuMessage that carries an SDS message: ``sighting`` counts those of the same one in the order of
    their timestamps. The key is message_hash, or (channel_id, message_id) where ``sighting = 1``.
    """
    rows = Cut(
        frame=decoded.where("status = 'ok'").select(*DECODED_INPUT),
        by=MESSAGE_KEY,
        prepare=lambda table: {"rows": table},
    )
    return bucketed(
        [rows],
        lambda bucket: honest_messages(bucket.tables["rows"], sightings_of(bucket.tables["rows"])),
        SDS_MESSAGES,
    )
