"""How much the REST API gives to whom, and for how long: each bound is read where it bites."""

from __future__ import annotations

from typing import Final

CACHE_TOPICS: Final = 10_000
"""Topics that each of the two message caches is subscribed to."""
MAX_BODY_BYTES: Final = 1_048_576
"""Of a request; longer ones are 413."""
MAX_HEADER_BYTES: Final = 65_536
"""Of a request; longer ones are 400."""
MAX_CONNECTIONS: Final = 1_000
"""Beyond it one on which no request is under way gives way to a new one."""
MAX_REQUESTS: Final = 64
"""Under way at once, event streams aside; beyond it the one whose body has been awaited longest gives way (408),
and where no body is awaited the new one is 503."""
MAX_EVENT_STREAMS: Final = 256
"""At once; beyond it is 503."""
EVENT_STREAM_BYTES: Final = 8_388_608
"""Messages that wait for one reader of an event stream; the oldest give way, and an event says so."""
HEARTBEAT_S: Final = 15.0
"""An event stream on which nothing happens says so this often."""
REQUEST_TIMEOUT_S: Final = 10.0
"""To receive a request, and to answer it."""
STALL_S: Final = 30.0
"""How long a client may leave an answer unread."""
KEEP_ALIVE_S: Final = 30
"""How long a connection may be idle between two requests."""
