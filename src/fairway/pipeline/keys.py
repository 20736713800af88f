"""`ChannelKeys`: the keys of encrypted channels, for a run over an archive of many channels.

A key belongs to a channel or to a content topic; the key of a channel has precedence. The topic of a message is known
before decryption, its channel only afterwards. So the keys of its topic are tried first, then those of every channel.
Messages in clear text on a topic with keys are rejected. A channel with a key accepts only messages under this key, so
that senders with another key, or without a key, cannot write into it. If the channel is known before decryption,
`ChannelKeys.opening` uses only its keys.

Invariant: a key is only in the key file and in the memory of the processes that decrypt messages. No ``repr`` and no
error contains a key, and `ChannelKeys.digest` reveals none without the salt and a key to compare.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

from fairway.errors import ConfigurationError, DecryptionError
from fairway.protocol.encryption import AesGcm, ChaCha20Poly1305, Encryption, SymmetricPayload, decrypt_at_once
from fairway.protocol.encryption.entropy import RandomBytes
from fairway.wire.topics import ContentTopic

_HINT: Final = '{"<channel or content topic>": {"cipher": "aes-256-gcm", "key": "<64 hex digits>"}}'
_FIELDS: Final = {"cipher", "key", "associated_data"}
_MAX_FILE_BYTES: Final = 16_777_216


def _payload_v1(key: bytes, associated_data: bytes, random_bytes: RandomBytes) -> Encryption:
    if associated_data:
        raise ConfigurationError("payload-v1 has no associated_data")
    return SymmetricPayload(key, random_bytes=random_bytes)


_CIPHERS: Final[Mapping[str, Callable[[bytes, bytes, RandomBytes], Encryption]]] = {
    "aes-256-gcm": lambda key, data, source: AesGcm(key, associated_data=data, random_bytes=source),
    "chacha20-poly1305": lambda key, data, source: ChaCha20Poly1305(key, associated_data=data, random_bytes=source),
    "payload-v1": _payload_v1,
}


class Opened(NamedTuple):
    """A payload after decryption."""

    plaintext: bytes
    channel_id: str | None = None
    """The channel whose key decrypted it; None for a key of its topic, or for clear text."""
    in_clear: bool = False


class ChannelKeys:
    """The keys of channels and content topics. Can be pickled, with its keys, for Spark executors."""

    def __init__(self, entries: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Take the entries of a key file: for each name one or more, the newest first."""
        self._entries = {name: list(group) for name, group in entries.items()}
        self._topics: dict[str, list[Encryption]] = {}
        self._channels: dict[str, list[Encryption]] = {}
        for name, group in self._entries.items():
            if not group:
                raise ConfigurationError(f"{name!r} has an empty list of keys: {_HINT}")
            known = self._topics if _is_content_topic(name) else self._channels
            known[name] = [_cipher(name, entry) for entry in group]
        self._last_channel: dict[str, str] = {}

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> ChannelKeys:
        """Return the keys in a JSON file; raise `ConfigurationError`, which never quotes it, if it is unreadable."""
        try:
            if Path(path).stat().st_size > _MAX_FILE_BYTES:
                raise ConfigurationError(f"{path} is too large for a key file")
            read = json.loads(Path(path).read_bytes())
        except OSError as error:
            raise ConfigurationError(f"the key file cannot be read: {error}") from error
        except ValueError:
            # The error of the JSON parser holds the whole text, so it is not chained.
            raise ConfigurationError(f"{path} is not JSON; expected {_HINT}") from None
        return cls.from_mapping(read)

    @classmethod
    def from_mapping(cls, mapping: object) -> ChannelKeys:
        """Return the keys of a key file's content: by name an entry, or a list of entries with the newest first."""
        if not isinstance(mapping, dict):
            raise ConfigurationError(f"a key file holds one JSON object: {_HINT}")
        return cls({name: entry if isinstance(entry, list) else [entry] for name, entry in mapping.items()})

    def __repr__(self) -> str:
        return f"<ChannelKeys of {len(self._channels)} channels and {len(self._topics)} content topics>"

    def __len__(self) -> int:
        return len(self._entries)

    def has_channel(self, channel_id: str) -> bool:
        """Return whether a channel has a key of its own."""
        return channel_id in self._channels

    def refusal(self, opened: Opened, channel_id: str) -> str | None:
        """Return the reason why a channel refuses a decrypted payload; None if it accepts it."""
        if opened.channel_id is not None and opened.channel_id != channel_id:
            return f"encrypted with the key of channel {opened.channel_id}, but of another"
        if self.has_channel(channel_id) and opened.channel_id is None:
            return (
                f"{'in clear' if opened.in_clear else 'encrypted with the key of its topic'}, but its channel has a key"
            )
        return None

    def opening(self, channel_id: str, content_topic: str) -> Callable[[bytes], bytes]:
        """Return the decryption of one channel's messages on one topic, which raises `DecryptionError` for others.

        Raises `ConfigurationError` if there are no keys for them.
        """
        ciphers = self._channels.get(channel_id) or self._topics.get(content_topic)
        if ciphers is None:
            raise ConfigurationError(
                f"the key file has no key for the channel {channel_id!r} or its topic {content_topic}: add one, or "
                "leave the key file out if the channel is in clear"
            )
        return partial(_first, ciphers)

    def cipher_for_sending(
        self, channel_id: str, content_topic: str, random_bytes: Callable[[bytes, bytes], RandomBytes]
    ) -> Encryption | None:
        """Return the cipher of the newest key for a channel's messages on a topic, or None without a key.

        The channel's key has precedence over the topic's, as in decryption. ``random_bytes`` makes the cipher's source
        of randomness, from the key and from a context that is unique to the cipher and its associated data.
        """
        for name in (channel_id, content_topic):
            if name in (self._topics if _is_content_topic(name) else self._channels):
                entry = self._entries[name][0]
                context = f"{entry['cipher']}\0{entry.get('associated_data', '')}".encode()
                return _cipher(name, entry, random_bytes(bytes.fromhex(entry["key"]), context))
        return None

    def open(self, content_topic: str | None, payload: bytes) -> Opened:
        """Return a payload decrypted by the first matching key, or unchanged as clear text if no key matches.

        Raises `DecryptionError` if the topic has keys and no key matches.
        """
        own = self._topics.get(content_topic or "")
        if own is not None:
            with suppress(DecryptionError):
                return Opened(_first(own, payload))
        for name in self._order(content_topic or ""):
            try:
                plaintext = _first(self._channels[name], payload)
            except DecryptionError:
                continue
            self._last_channel[content_topic or ""] = name
            return Opened(plaintext, channel_id=name)
        if own is not None:
            raise DecryptionError("no key opens it, and its topic has one")
        return Opened(payload, in_clear=True)

    def digest(self, salt: bytes) -> str:
        """Return a digest of the keys, for comparing two runs."""
        text = json.dumps(self._entries, sort_keys=True).encode()
        return hmac.new(salt, text, hashlib.sha256).hexdigest()[:32]

    def _order(self, content_topic: str) -> list[str]:
        """Return the channels, beginning with the one whose key decrypted the last message on the topic."""
        last = self._last_channel.get(content_topic)
        if last is None:
            return list(self._channels)
        return [last, *(name for name in self._channels if name != last)]


def digest_of(keys: ChannelKeys | None, salt: str) -> str | None:
    """Return the digest of the keys for ``run.json``, None without keys; ``salt`` is the salt of that file, in hex."""
    return None if keys is None else keys.digest(bytes.fromhex(salt))


def _is_content_topic(name: str) -> bool:
    try:
        ContentTopic.parse(name)
    except ConfigurationError:
        return False
    return True


def _first(ciphers: Sequence[Encryption], payload: bytes) -> bytes:
    for cipher in ciphers[:-1]:
        try:
            return decrypt_at_once(cipher, payload)
        except DecryptionError:
            continue
    return decrypt_at_once(ciphers[-1], payload)


def _cipher(name: str, entry: object, random_bytes: RandomBytes = os.urandom) -> Encryption:
    if not isinstance(entry, Mapping) or not {"cipher", "key"} <= entry.keys() <= _FIELDS:
        raise ConfigurationError(f"the key of {name!r} needs the fields cipher and key: {_HINT}")
    make = _CIPHERS.get(entry["cipher"]) if isinstance(entry["cipher"], str) else None
    if make is None:
        raise ConfigurationError(f"the cipher of {name!r} must be one of {', '.join(_CIPHERS)}")
    associated_data = entry.get("associated_data", "")
    try:
        return make(bytes.fromhex(entry["key"]), associated_data.encode(), random_bytes)
    except ConfigurationError as error:
        raise ConfigurationError(f"the key of {name!r} cannot be used: {error}") from None
    except (TypeError, ValueError, AttributeError):
        # The texts of these errors quote their arguments.
        raise ConfigurationError(f"the key of {name!r} must be 64 hex digits and associated_data a text") from None
