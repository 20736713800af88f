"""`Signing`: signs the own messages of a channel, and verifies all others before SDS reads them.

The signature belongs to the SDS message (`fairway.wire.signature`), inside the encryption. Retransmissions, copies of a
store and answers to repair requests carry the original bytes, and so the original signature.

The key of a sender id is that of the list of members. If the list learns, a message may name its key, and the first
key that a sender id names is its key from then on. A message is refused

- under a sender id with a key, unless that key signed it;
- under any other sender id, if the channel requires signatures.

Payloads of 26/WAKU2-PAYLOAD have a signature of their own, around the SDS message. It counts as well, so that messages
of js-waku can be verified. It names the participant that transmitted the message, not its author.

A refused message changes no state of SDS. Events report refusals: for each sender id with a key and each fault at most
one a minute, and for all sender ids without a key together the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from fairway.events import MemberTrusted, SignatureFault, SignatureRefused
from fairway.protocol.notices import NOTICE_PAUSE_MS
from fairway.protocol.signing.keys import SigningKey, verify
from fairway.wire.sds import SdsCodec, SdsMessage
from fairway.wire.signature import Signed, read_signature, signed_bytes, with_signature, with_signer_key

_TRIED_KEYS: Final = 100
"""Members whose keys are tried to find who signed a refused message."""


class MemberKeys(Protocol):
    """The public keys of the members of a channel, by sender id."""

    @property
    def learns(self) -> bool:
        """Whether the first key that a sender id names becomes its key."""

    def get(self, sender_id: str) -> bytes | None:
        """Return the key of a sender id, or None."""

    def items(self) -> Iterable[tuple[str, bytes]]:
        """Return all sender ids with their keys."""

    def learn(self, sender_id: str, public_key: bytes) -> bool:
        """Keep the key of a new sender id; return False if there is no room for it, or if it has another key."""


class _Refusal(NamedTuple):
    fault: SignatureFault
    signer_key: bytes | None = None
    """Key that signed the message, if known."""


class Signing:
    """The signatures of one participant in one channel."""

    def __init__(
        self,
        channel_id: str,
        sender_id: str,
        key: SigningKey | None,
        members: MemberKeys | None,
        *,
        required: bool,
    ) -> None:
        """Without ``key`` messages are not signed; without ``members`` only the own sender id has a key."""
        self.required = required
        """Whether messages of sender ids without a key are refused."""
        self._channel_id = channel_id
        self._sender_id = sender_id
        self._key = key
        self._members = members
        self._names_key = members is not None and members.learns
        self._events: list[MemberTrusted | SignatureRefused] = []
        self._unannounced = 0
        self._quiet_until_ms: dict[tuple[str, SignatureFault], int] = {}
        """Time of the next event, by sender id with a key and fault; "" stands for the other sender ids."""

    def encoder(self, codec: SdsCodec) -> Callable[[SdsMessage], bytes]:
        """Return the function that encodes own messages; it signs them if there is a key.

        Equal messages have equal bytes, because signatures are deterministic.
        """
        key = self._key
        return codec.encode if key is None else lambda message: self._sign(key, codec.encode(message))

    def admits(self, message: SdsMessage, encoded: bytes, frame_signer: bytes | None, now_ms: int) -> bool:
        """Return whether SDS may read a message: of this channel, and with every signature that it must have.

        ``frame_signer`` is the key that signed the payload around it (26/WAKU2-PAYLOAD). The events of this call wait
        for `take_events`.
        """
        if message.channel_id != self._channel_id:
            # SDS ignores it. A signature holds for one channel only.
            return True
        refusal = self._refusal_of(message.sender_id, read_signature(encoded), frame_signer)
        if refusal is not None:
            self._announce(message.sender_id, refusal, encoded, now_ms)
        return refusal is None

    def take_events(self) -> list[MemberTrusted | SignatureRefused]:
        """Return the events of the calls of `admits` so far, each once."""
        events, self._events = self._events, []
        return events

    def _sign(self, key: SigningKey, message: bytes) -> bytes:
        covered = with_signer_key(message, key.public_key) if self._names_key else message
        return with_signature(covered, key.sign(signed_bytes(self._channel_id, self._sender_id, covered)))

    def _refusal_of(self, name: str, signed: Signed | None, frame_signer: bytes | None) -> _Refusal | None:
        key = self._key_of(name)
        if key is None:
            return self._refusal_of_stranger(name, signed, frame_signer)
        if frame_signer == key or self._is_signed_by(key, name, signed):
            return None
        named = self._proven_key(name, signed, frame_signer)
        if named is not None:
            return _Refusal(SignatureFault.KEY_CHANGED if self._names_key else SignatureFault.WRONG_KEY, named)
        return _Refusal(SignatureFault.UNSIGNED if signed is None else SignatureFault.WRONG_KEY)

    def _refusal_of_stranger(self, name: str, signed: Signed | None, frame_signer: bytes | None) -> _Refusal | None:
        """Return why a message under a sender id without a key is refused; the first key becomes its key."""
        named = self._proven_key(name, signed, frame_signer)
        if self._names_key and self._members is not None and named is not None:
            if self._members.learn(name, named):
                self._events.append(MemberTrusted(sender_id=name, public_key=named))
                return None
            return _Refusal(SignatureFault.UNKNOWN_MEMBER, named)
        if self._names_key and signed is not None and signed.signer_key is not None:
            return _Refusal(SignatureFault.WRONG_KEY)
        if not self.required:
            return None
        is_unsigned = signed is None and frame_signer is None
        return _Refusal(SignatureFault.UNSIGNED if is_unsigned else SignatureFault.UNKNOWN_MEMBER, named)

    def _key_of(self, name: str) -> bytes | None:
        if name == self._sender_id and self._key is not None:
            return self._key.public_key
        return None if self._members is None else self._members.get(name)

    def _proven_key(self, name: str, signed: Signed | None, frame_signer: bytes | None) -> bytes | None:
        """Return the key that a message names and that signed it, or the key that signed its payload."""
        if signed is not None and signed.signer_key is not None:
            try:
                return signed.signer_key if self._is_signed_by(signed.signer_key, name, signed) else None
            except ValueError:
                # These bytes are no public key.
                return None
        return frame_signer

    def _is_signed_by(self, key: bytes, name: str, signed: Signed | None) -> bool:
        return signed is not None and verify(
            key, signed.signature, signed_bytes(self._channel_id, name, signed.covered)
        )

    def _announce(self, name: str, refusal: _Refusal, encoded: bytes, now_ms: int) -> None:
        self._unannounced += 1
        kind = (name if self._key_of(name) is not None else "", refusal.fault)
        quiet_until_ms = self._quiet_until_ms.get(kind, 0)
        # A clock that was set back does not silence the events.
        if now_ms < quiet_until_ms <= now_ms + NOTICE_PAUSE_MS:
            return
        self._quiet_until_ms[kind] = now_ms + NOTICE_PAUSE_MS
        count, self._unannounced = self._unannounced, 0
        signer = self._signer_of(name, refusal, encoded)
        self._events.append(
            SignatureRefused(
                sender_id=name, fault=refusal.fault, signer=signer, signer_key=refusal.signer_key, count=count
            )
        )

    def _signer_of(self, name: str, refusal: _Refusal, encoded: bytes) -> str | None:
        """Return the member whose key signed a refused message."""
        signed, known = read_signature(encoded), [] if self._members is None else list(self._members.items())
        if self._key is not None:
            known.append((self._sender_id, self._key.public_key))
        if refusal.signer_key is not None:
            return next((member for member, key in known if key == refusal.signer_key), None)
        tried = known[:_TRIED_KEYS]
        return next((member for member, key in tried if self._is_signed_by(key, name, signed)), None)
