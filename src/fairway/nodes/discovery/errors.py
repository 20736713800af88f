"""The errors of `fairway.nodes.discovery`.

::

    DecodeError
    +-- NodeRecordError       bytes or text that are no valid node record; ``fault`` says how
    +-- NodeListError         an entry of a list in DNS that is wrong; ``fault`` says how
    NetworkError
    +-- NameServerError       the DNS did not answer

What a peer or a DNS server sends raises nothing else.
"""

from __future__ import annotations

from enum import Enum

from fairway.errors import DecodeError, NetworkError


class RecordFault(Enum):
    """How a node record is wrong."""

    TEXT = "text"
    """The text form is not "enr:" and base64 without padding."""
    TOO_LONG = "too long"
    """More than 300 bytes."""
    ENCODING = "encoding"
    """Not the RLP list of a signature, a sequence number, and pairs of keys and values."""
    ORDER = "order"
    """The keys are not sorted, or one comes twice."""
    SCHEME = "scheme"
    """The identity scheme is not "v4"."""
    KEY = "key"
    """No compressed secp256k1 public key."""
    SIGNATURE = "signature"
    """The key did not sign this content."""


class NodeRecordError(DecodeError):
    """A node record that is not valid; counters and tests use ``fault``."""

    def __init__(self, fault: RecordFault, detail: str) -> None:
        super().__init__(f"a node record with a wrong {fault.value}: {detail}")
        self.fault = fault


class ListFault(Enum):
    """How an entry of a node list is wrong."""

    URL = "URL"
    """Not enrtree://KEY@DOMAIN."""
    ENTRY = "entry"
    """The text is none of the kinds of entries that can stand there."""
    HASH = "hash"
    """The text does not have the hash that is its name."""
    SIGNATURE = "signature"
    """The key of the list did not sign this root."""
    SEQUENCE = "sequence"
    """The root is older than one that was seen before."""


class NodeListError(DecodeError):
    """An entry of a node list in DNS that is not valid; counters and tests use ``fault``."""

    def __init__(self, fault: ListFault, detail: str) -> None:
        super().__init__(f"a node list with a wrong {fault.value}: {detail}")
        self.fault = fault


class NameServerError(NetworkError):
    """The DNS did not answer, or has no such name; the text says which name servers were asked."""
