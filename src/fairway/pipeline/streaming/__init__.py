"""The pipeline as a stream: it follows growing archives and delivers each message once, when it is complete.

::

    archives --readStream--> recorded/ --readStream--> decoded --transformWithState--> emitted/
                                 |                              one core per channel
                                 +--the steps of a run, now and then--> tables/

`stream` runs it, and `deliveries` reads the delivered messages. docs/stream.md describes its use,
docs/decisions/pipeline.md its design.
"""

from __future__ import annotations

from fairway.pipeline.streaming.deliveries import BEGINNING, DeliveryPlace, deliveries
from fairway.pipeline.streaming.live import stream
from fairway.pipeline.streaming.options import StreamOptions
from fairway.pipeline.streaming.progress import StreamProgress, StreamSummary

__all__ = ["BEGINNING", "DeliveryPlace", "StreamOptions", "StreamProgress", "StreamSummary", "deliveries", "stream"]
