"""The section of an HTML report on senders whose messages were lost."""

from __future__ import annotations

from fairway.pipeline.report.findings import senders_of
from fairway.pipeline.report.html.losses import ROWS
from fairway.pipeline.report.html.page import Column, name, table
from fairway.pipeline.report.html.words import of
from fairway.pipeline.run.reading import RunTables


def senders(tables: RunTables) -> tuple[str, ...]:
    """Return the senders with the most lost messages."""
    total = tables.rows("sender_stats")
    told = [sender for sender in senders_of(tables, ROWS) if sender.missing or sender.incomplete]
    if not told:
        return (f"Nothing was lost of any of {total:,} pairs of a channel and a sender.",)
    lead = (
        f"Of {total:,} pairs of a channel and a sender those come first of whom most was lost. The author of a missing "
        "message is known only if a citation tells it."
    )
    titles = ("SDS messages missing", "messages incomplete", "acknowledged")
    columns = [Column(title="channel"), Column(title="sender"), *(Column(title=each, figure=True) for each in titles)]
    rows = [
        (
            name(sender.channel_id),
            name(sender.sender_id),
            of(sender.missing, sender.content + sender.missing),
            of(sender.incomplete, sender.delivered + sender.incomplete),
            of(sender.acknowledged, sender.content),
        )
        for sender in told
    ]
    caption = "Senders, those of whom most was lost first"
    return lead, table(caption, columns, rows, of=total, what="channels and senders", wide=True)
