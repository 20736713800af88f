"""The error tree: what fairway raises to its caller.

::

    FairwayError
    +-- ConfigurationError          an option has a value that cannot work (also a ValueError)
    +-- MissingExtraError           a package is not installed that an extra brings (also an ImportError)
    +-- LocalError                  the caller's own doing; nothing was sent
    |   +-- EmptyPayloadError
    |   +-- MessageTooLargeError
    |   +-- ChannelClosedError
    |   +-- EncryptionError         the encryption hook failed; nothing leaves in clear
    +-- DeliveryFailedError         a send ended without the acknowledgements that were asked for
    +-- NetworkError                the Waku node could not serve
    |   +-- NodeUnavailableError    it cannot be reached, or is closed
    |   +-- StoreQueryError         a store query failed
    +-- StorageError                what must survive a crash cannot be kept or read; nothing more leaves
    |   +-- StoreLockedError        another process uses it
    |   +-- StoreMismatchError      it belongs to another channel or sender
    |   +-- StoreVersionError       a newer fairway wrote it
    |   +-- StoreCorruptError       it is not a store, or damaged
    |   +-- StoreFullError          the disk is full, or cannot be written
    +-- RemoteError                 bytes from outside that do not follow a specification
    |   +-- DecodeError             not decodable as the named format
    |   |   +-- SegmentError        a segment that breaks a rule of SEGMENTATION or LIP-243
    |   +-- DecryptionError         not sealed for us, or tampered with
    +-- RlnError                    the RLN proof provider could not serve (``kind`` says how)
    +-- ErasureCodeError            Reed-Solomon was asked for the impossible
    |   +-- NotEnoughShardsError    fewer shards are left than there is data
    +-- SnapshotError               a stored state that this version cannot read
    +-- PipelineError               a run of the pipeline was broken off; it goes on when started again

Local and remote faults are apart (as in h11): a program may blame itself for the first and must survive
the second. Decoders raise `DecodeError` and nothing else; the protocol layers count it and never raise it.
"""

from __future__ import annotations

from enum import Enum


class FairwayError(Exception):
    """Base of every error that fairway raises on purpose."""


class ConfigurationError(FairwayError, ValueError):
    """An option has a value that cannot work; the text says which values can."""


class MissingExtraError(FairwayError, ImportError):
    """A package is not installed that comes with an extra of fairway; the text says what to install."""

    def __init__(self, extra: str, what: str, package: str) -> None:
        super().__init__(f"{what} needs {package}, which is not installed: pip install 'fairway[{extra}]'")
        self.extra = extra
        """Of the distribution: ``cli``, ``node``, ``spark`` or ``postgresql``."""
        self.name = package
        """The package that was not found."""


class LocalError(FairwayError):
    """The caller asked for something that cannot be done; nothing was sent."""


class EmptyPayloadError(LocalError):
    """A message has no content (RELIABLE-CHANNEL-API, "Event handling": irrecoverable errors)."""


class MessageTooLargeError(LocalError):
    """A message is larger than the configured maximum (1 MiB in drafts of LIP-173, "Segmentation")."""

    def __init__(self, size_bytes: int, limit_bytes: int, hint: str = "raise the limit or send it in parts") -> None:
        super().__init__(f"the message has {size_bytes} bytes, at most {limit_bytes} are allowed; {hint}")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class ChannelClosedError(LocalError):
    """The channel is closed or was never started."""


class EncryptionError(LocalError):
    """The encryption hook failed to seal a message; it stays unsent, never in clear."""


class DeliveryFailedError(FairwayError):
    """A send ended without the acknowledgements that were asked for; the text says how far it came."""


class NetworkError(FairwayError):
    """The Waku node could not serve; the channel tries again by itself."""


class NodeUnavailableError(NetworkError):
    """The node cannot be reached, or was closed."""


class StoreQueryError(NetworkError):
    """A store node did not answer a query, or answered with an error."""


class StorageError(FairwayError):
    """What must survive a crash cannot be kept or read. Nothing leaves that was not kept before."""


class StoreLockedError(StorageError):
    """Another process uses the store: one process per store."""


class StoreMismatchError(StorageError):
    """The store belongs to another channel, sender or content topic."""


class StoreVersionError(StorageError):
    """A newer version of fairway wrote the store."""


class StoreCorruptError(StorageError):
    """The file is no store, or is damaged."""


class StoreFullError(StorageError):
    """The disk is full, or the file cannot be written."""


class RemoteError(FairwayError):
    """Something received does not follow its specification."""


class DecodeError(RemoteError):
    """Bytes that cannot be decoded as the named format."""


class SegmentError(DecodeError):
    """A segment that breaks a rule; ``reason`` is one word for counters."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class DecryptionError(RemoteError):
    """Bytes that were not sealed for this channel, or were tampered with.

    On a shared content topic this is everyday traffic: it is counted, never surfaced one by one.
    """


class RlnErrorKind(Enum):
    """Why an RLN proof provider could not serve (RLN-API)."""

    NOT_READY = "not-ready"
    """The provider is still starting or syncing its tree: try again later."""
    TRANSIENT = "transient"
    """A passing fault: try again later."""
    BUDGET_EXHAUSTED = "budget-exhausted"
    """No unused message number is left in this epoch: wait for the next."""
    PERMANENT = "permanent"
    """There will be no proof: "RLN proof generation failed" (RELIABLE-CHANNEL-API, "Event handling")."""


class RlnError(FairwayError):
    """The RLN proof provider could not serve a request."""

    def __init__(self, kind: RlnErrorKind, detail: str = "") -> None:
        super().__init__(f"RLN proof generation failed ({kind.value}){': ' if detail else ''}{detail}")
        self.kind = kind


class ErasureCodeError(FairwayError, ValueError):
    """Reed-Solomon was asked for something outside its domain."""


class NotEnoughShardsError(ErasureCodeError):
    """Fewer shards are left than there is data to recover."""


class SnapshotError(FairwayError):
    """A stored state that this version cannot read."""


class PipelineError(FairwayError):
    """A run of the pipeline was broken off. What was whole stays: started again it goes on from there."""
