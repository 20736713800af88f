"""The errors that fairway raises, as a tree.

::

    FairwayError
    +-- ConfigurationError          an option has a value that cannot work (also a ValueError)
    |   +-- NotAwaitedError         a node or channel is used before it was awaited (also an AttributeError)
    +-- MissingExtraError           a package of an optional extra is not installed (also an ImportError)
    +-- LocalError                  the caller asked for something impossible; nothing was sent
    |   +-- EmptyPayloadError
    |   +-- MessageTooLargeError
    |   +-- ChannelClosedError
    |   +-- EventLoopError          an object is used on another event loop than its own, or its loop has ended
    |   +-- FileChangedError        a file that is sent in parts changed meanwhile
    |   +-- EncryptionError         the encryption hook failed; the message is not sent
    +-- DeliveryFailedError         a send failed: the requested acknowledgements did not arrive
    |   +-- SendExpiredError        its deadline has passed
    +-- NoOneThereError             a request was not sent, because nobody is present who can answer it
    +-- NetworkError                the Waku node did not carry out a request
    |   +-- NodeUnavailableError    the node cannot be reached, or is closed
    |   +-- StoreQueryError         a store query failed
    |       +-- StoreRefusedError   the store refuses the query permanently
    +-- StorageError                the channel's store failed; the channel sends nothing more
    |   +-- StoreLockedError        the store or the archive is in use
    |   +-- StoreMismatchError      the store belongs to another channel or sender
    |   +-- StoreVersionError       a newer version of fairway wrote the store
    |   +-- StoreCorruptError       the file is not a store, or is damaged
    |   +-- StoreFullError          the disk is full, or broken
    |   +-- StorePathError          the path cannot be used: a missing directory, no permission
    |   +-- WrongPasswordError      a password decrypts nothing in a keystore
    +-- RemoteError                 received bytes do not follow a specification
    |   +-- DecodeError             they cannot be decoded as the named format
    |   |   +-- SegmentError        a segment breaks a rule of SEGMENTATION or LIP-243
    |   +-- DecryptionError         they were not encrypted for this channel, or were altered
    +-- RlnError                    the RLN proof provider failed (``kind`` has the reason)
    +-- ErasureCodeError            arguments of Reed-Solomon are outside its domain
    |   +-- NotEnoughShardsError    fewer shards are present than data shards were encoded
    +-- SnapshotError               this version cannot read a stored state
    +-- ForeignCodeError            code of the application, a node or a store raised an unusual exception
    +-- PipelineError               a run of the pipeline stopped; starting it again continues it

Local and remote errors are separate: a local error is a mistake of the calling program, a remote error is bad input
that the program must survive. Decoders raise `DecodeError` and nothing else. The protocol layers catch and count it.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

_Error = TypeVar("_Error", bound=BaseException)


def copy_of(error: _Error) -> _Error:
    """Return a copy of an exception that more than one caller raises.

    Each raise appends frames to the traceback of the exception object. An object that many callers raise therefore
    grows with each raise, and the tracebacks mix. The copy has the class, the text, the attributes, the cause and the
    present traceback.
    """
    kind = type(error)
    arguments = error.__reduce__()[1]
    # The `__init__` of a class of fairway has other parameters; that of its built-in base accepts these arguments.
    base = next(each for each in kind.__mro__ if each.__module__ == "builtins")
    copied = kind.__new__(kind, *arguments)
    base.__init__(copied, *arguments)  # type: ignore[misc]
    copied.__dict__.update(error.__dict__)
    copied.__cause__, copied.__context__ = error.__cause__, error.__context__
    copied.__suppress_context__ = error.__suppress_context__
    return copied.with_traceback(error.__traceback__)


class FairwayError(Exception):
    """Base of all errors of fairway."""


class ConfigurationError(FairwayError, ValueError):
    """An option has a value that cannot work; the text says which values can."""


class NotAwaitedError(ConfigurationError, AttributeError):
    """A result of ``connect`` or ``create_reliable_channel`` is used without ``await`` or ``async with``."""


class MissingExtraError(FairwayError, ImportError):
    """A package of an optional extra is not installed; the text names the extra to install."""

    def __init__(self, extra: str, what: str, package: str) -> None:
        here = "make rln" if extra == "rln" else f"pip install '.[{extra}]'"
        super().__init__(
            f"{what} needs {package}, which is not installed: pip install 'fairway[{extra}]',"
            f" or in the sources of fairway: {here}"
        )
        self.extra = extra
        """The extra to install: ``cli``, ``node``, ``spark``, ``postgresql`` or ``rln``."""
        self.name = package
        """The package that was not found."""


class LocalError(FairwayError):
    """The caller asked for something impossible; nothing was sent."""


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


class EventLoopError(LocalError):
    """A channel, a receipt or a node is used on another event loop than its own, or its event loop has ended."""


class FileChangedError(LocalError):
    """A file changed while it was being sent; the remaining parts are not sent."""


class EncryptionError(LocalError):
    """The encryption hook failed to encrypt a message. The message is not sent."""


class DeliveryFailedError(FairwayError):
    """A send failed: the requested acknowledgements did not arrive, or it cannot be sent.

    The attributes are those of the event `fairway.DeliveryError`.
    """

    def __init__(
        self,
        text: str,
        *,
        acknowledged_by: tuple[str, ...] = (),
        delivered_to: tuple[str, ...] = (),
        missing: tuple[str, ...] = (),
        missing_count: int = 0,
        chunks_missing: tuple[int, ...] = (),
        total_chunks: int = 0,
        refusal: str = "",
    ) -> None:
        super().__init__(text)
        self.acknowledged_by = acknowledged_by
        """Sender ids of the participants that acknowledged any segment."""
        self.delivered_to = delivered_to
        """Sender ids of the participants that acknowledged the whole message."""
        self.missing = missing
        """Sender ids of the participants that the send named and that did not acknowledge the whole message."""
        self.missing_count = missing_count
        """Number of participants that still have to acknowledge the whole message, including those in ``missing``."""
        self.chunks_missing = chunks_missing
        """Indices of the data segments that one of these participants has not acknowledged, ascending."""
        self.total_chunks = total_chunks
        """Number of data segments of the message; 0 if it is not known."""
        self.refusal = refusal
        """Text of the node's last refusal of a transmission; empty if it accepted the latest one."""


class SendExpiredError(DeliveryFailedError):
    """The deadline of a send has passed. The channel does not transmit it any more."""


class RequestTimeoutError(FairwayError, TimeoutError):
    """No reply to a request came in time."""


class RequestFailedError(FairwayError):
    """The participant that got a request answered that it has no reply, and why."""


class NoOneThereError(FairwayError):
    """A request was not sent: its addressee is away, or no other participant is present (`ReliableChannel.members`)."""


class NetworkError(FairwayError):
    """The Waku node did not carry out a request; the channel repeats the request."""


class NodeUnavailableError(NetworkError):
    """The node cannot be reached, or was closed."""


class StoreQueryError(NetworkError):
    """A store node did not answer a query, or answered with an error."""


class StoreRefusedError(StoreQueryError):
    """A store node refuses a query, or its answer cannot be read; the same query would fail again.

    A query for a shorter time may succeed: newer versions of nwaku refuse a query for more than 24 hours.
    """


class StorageError(FairwayError):
    """The channel's store cannot be read or written. The channel sends only messages that the store has."""


class StoreLockedError(StorageError):
    """The store is in use; only one channel of one process may use it."""

    channel: object = None
    """The `ReliableChannel` of this process that uses the store, if any."""


class StoreMismatchError(StorageError):
    """The store belongs to another channel, sender or content topic."""


class StoreVersionError(StorageError):
    """A newer version of fairway wrote the store."""


class StoreCorruptError(StorageError):
    """The file is not a store, or is damaged."""


class StoreFullError(StorageError):
    """The disk is full, or an operation on it failed."""


class StorePathError(StorageError):
    """The path of a store cannot be used.

    A directory is missing, the path is a directory, or the file or its directory is not writable.
    """


class WrongPasswordError(StorageError):
    """A password decrypts nothing in a keystore, or the keystore is damaged."""


class RemoteError(FairwayError):
    """Received bytes do not follow their specification."""


class DecodeError(RemoteError):
    """The bytes cannot be decoded as the named format."""


class SegmentError(DecodeError):
    """A segment breaks a rule of its format; ``reason`` is one word, which counters use as a key."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class DecryptionError(RemoteError):
    """The bytes were not encrypted for this channel, or were altered.

    Such messages are normal on a shared content topic: the channel counts them (`MessagesUndecryptable`).
    """


class RlnErrorKind(Enum):
    """Reasons for the failure of an RLN proof provider (RLN-API)."""

    NOT_READY = "not-ready"
    """The provider is starting or syncing its membership tree: try again later."""
    TRANSIENT = "transient"
    """A temporary fault: try again later."""
    BUDGET_EXHAUSTED = "budget-exhausted"
    """The epoch has no unused message number left: wait for the next epoch."""
    PERMANENT = "permanent"
    """No proof is possible: "RLN proof generation failed" (RELIABLE-CHANNEL-API, "Event handling")."""


class RlnError(FairwayError):
    """The RLN proof provider failed; ``kind`` has the reason."""

    def __init__(self, kind: RlnErrorKind, detail: str = "") -> None:
        super().__init__(f"RLN proof generation failed ({kind.value}){': ' if detail else ''}{detail}")
        self.kind = kind


class ErasureCodeError(FairwayError, ValueError):
    """Arguments of Reed-Solomon are outside its domain."""


class NotEnoughShardsError(ErasureCodeError):
    """Fewer shards are present than data shards were encoded."""


class SnapshotError(FairwayError):
    """This version cannot read a stored state."""


class ForeignCodeError(FairwayError):
    """Code of the application, a node or a store raised an exception that `fairway.foreign_code` replaces.

    Usually that is the `CancelledError` of an awaited task. The original is the ``__cause__``.
    """


class PipelineError(FairwayError):
    """A run of the pipeline stopped. Its complete steps are kept; starting it again continues after them."""
