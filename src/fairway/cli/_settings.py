"""The settings of a participant: node, names, store and options.

`ChannelSettings.open` connects and returns a channel that has not started, so that a program can subscribe to its
events before the first one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fairway.channel.creation import create_reliable_channel
from fairway.channel.reliable_channel import ReliableChannel
from fairway.errors import ConfigurationError
from fairway.identity import Identity, Members
from fairway.nodes.connecting import connect
from fairway.nodes.node import WakuNode
from fairway.options import Profile, Receive, ReliableChannelOptions
from fairway.protocol.encryption import Encryption, SymmetricPayload
from fairway.units import counted
from fairway.wire.topics import default_topic

MOMENT_S: Final = 2.0
"""Time for a node to connect before a note says that it does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSettings:
    """One participant of one channel."""

    node: str
    """Address of the node, as `fairway.nodes.connecting.connect` takes it."""
    channel_id: str
    sender_id: str
    tls_ca_file: Path | None = None
    """File with certificate authorities (PEM) to trust beside the system's, for a node over TLS."""
    content_topic: str | None = None
    """`default_topic` of the channel if None."""
    rln: MemberRln | None = None
    """The membership that proves each sent message, if the network requires RLN proofs."""
    store: Path | None = None
    """File in which the channel survives a crash; memory if None."""
    options: ReliableChannelOptions = field(default_factory=ReliableChannelOptions)
    encryption: Encryption | None = None
    identity: Identity | None = None
    """The key that signs the messages of the participant."""
    members: Members | None = None
    """The keys of the other participants."""
    accepts_unsigned: bool = False
    """Whether messages of names without a key are accepted although there are members."""

    @property
    def topic(self) -> str:
        """The content topic: the given one, or that of the channel."""
        return self.content_topic if self.content_topic is not None else default_topic(self.channel_id)

    @asynccontextmanager
    async def open(self, *, needs_node: bool = True) -> AsyncIterator[tuple[WakuNode, ReliableChannel]]:
        """Connect and make the channel, not started; close both at the end.

        Raises `NodeUnavailableError` if the node cannot be reached, `ConfigurationError` for wrong settings. Without
        ``needs_node``, a channel with a store needs no node: it keeps sent messages until it is connected.
        """
        topic = self.topic
        must_be_there = needs_node or self.store is None
        given: dict[str, Any] = {} if must_be_there else {"connect_timeout_s": None}
        async with AsyncExitStack() as exits:
            if self.rln is not None:
                given["rln"] = exits.enter_context(await asyncio.to_thread(self.rln.open))
            node = await connect(self.node, tls_ca_file=self.tls_ca_file, **given)
            await exits.enter_async_context(node)
            if not must_be_there:
                await _connected_within(node, MOMENT_S)
            channel = await create_reliable_channel(
                node,
                self.channel_id,
                self.sender_id,
                topic,
                encryption=self.encryption,
                options=replace(self.options, auto_start=False),
                store=self.store,
                receive=Receive.EVENTS,
                identity=self.identity,
                members=self.members,
                require_signatures=False if self.accepts_unsigned else None,
            )
            try:
                yield node, channel
            finally:
                await channel.close()


async def _connected_within(node: WakuNode, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            async for status in node.status_changes():
                if status.connected:
                    return


def shared_key(text: str) -> Encryption:
    """Return the cipher of a group with a shared key: AES-256-GCM as in 26/WAKU2-PAYLOAD, which js-waku reads too.

    ``text`` is 64 hexadecimal digits; the error does not repeat them.
    """
    try:
        key = bytes.fromhex(text)
    except ValueError:
        raise ConfigurationError(
            "the key is not hexadecimal; give 64 digits, such as 'openssl rand -hex 32' prints"
        ) from None
    if len(key) != 32:
        raise ConfigurationError(
            f"the key has {counted(len(key), 'byte')}, 32 are needed; give 64 hexadecimal digits, "
            "such as 'openssl rand -hex 32' prints"
        )
    return SymmetricPayload(key)


def key_in(file: Path) -> str:
    """Return the key in a file, without surrounding white space; raise `ConfigurationError` if it cannot be read."""
    try:
        with file.open("rb") as opened:
            text = opened.read(_MAX_KEY_FILE_BYTES).decode("ascii", "replace")
    except OSError as error:
        raise ConfigurationError(
            f"the key file {file} cannot be read ({error.strerror}); make one with 'openssl rand -hex 32'"
        ) from error
    return text.strip()


_MAX_KEY_FILE_BYTES: Final = 4_096
_LOCAL: Final = (
    "local:",
    "/ip4/127.",
    "/ip6/::1/",
    "/dns4/localhost/",
    "/dns/localhost/",
    "http://127.",
    "http://localhost",
)
"""Beginnings of the addresses of this machine."""
LOCAL_INTERVAL_MS: Final = 5_000
"""Retry interval on the network of one machine."""


def load_options(
    given: str | None = None,
    *,
    profile: Profile | None = None,
    cluster_id: int | None = None,
    shard_count: int | None = None,
    node: str | None = None,
) -> ReliableChannelOptions:
    """Return the defaults of a profile, overlaid with options in JSON, or in a file with JSON.

    The timers of the specifications suit a network of many nodes. If ``node`` is an address of this machine, they are
    shorter, so that an acknowledgement arrives within seconds.
    """
    mapping = {} if given is None else _read(given)
    named = mapping.get("profile")
    if profile is not None and named not in {None, profile.value}:
        raise ConfigurationError(f"--profile is {profile.value}, --options has {named!r}: leave one of them out")
    # from_mapping refuses an unknown name.
    base = (profile or next((each for each in Profile if each.value == named), Profile.WAKU)).options()
    if node is not None and node.startswith(_LOCAL):
        usual_ms = 30_000 if base.retry_interval_ms is None else base.retry_interval_ms
        retry_interval = min(usual_ms, LOCAL_INTERVAL_MS)
        base = replace(
            base,
            retry_interval_ms=retry_interval,
            max_retry_attempts=base.max_retry_attempts * usual_ms // retry_interval,
        )
    options = ReliableChannelOptions.from_mapping(_overlay(asdict(base), mapping)) if mapping else base
    return replace(
        options,
        cluster_id=options.cluster_id if cluster_id is None else cluster_id,
        shard_count=options.shard_count if shard_count is None else shard_count,
    )


def _read(given: str) -> Mapping[str, Any]:
    is_json = given.lstrip().startswith("{")
    try:
        mapping = json.loads(given if is_json else Path(given).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"{given} cannot be read ({error.strerror}); give a file with a JSON object of options, or the object"
        ) from error
    except ValueError as error:
        raise ConfigurationError(f"{given:.100} is not JSON ({error}); give an object of option names") from error
    if not isinstance(mapping, dict):
        raise ConfigurationError(f"{given} must hold a JSON object of option names and values")
    return mapping


def _overlay(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` overlaid with ``given``, layer by layer; unknown names stay for the check."""
    return {**base} | {
        name: _overlay(base[name], value)
        if isinstance(base.get(name), Mapping) and isinstance(value, Mapping)
        else value
        for name, value in given.items()
    }


if TYPE_CHECKING:
    from fairway.rln.membership import RlnMembership


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRln:
    """The membership of a participant, in a group that is a file."""

    group: Path
    keystore: Path
    password: str = field(repr=False)
    """Of the keystore."""

    def open(self) -> RlnMembership:
        """Open the membership, to be closed by the caller; it reads files and decrypts, so call it in a worker thread.

        Raises `WrongPasswordError`, a `StorageError` for files that cannot be used, and `MissingExtraError` without
        fairway-rln.
        """
        from fairway.rln.membership import RlnMembership  # noqa: PLC0415 - most participants need no RLN

        return RlnMembership.load(self.keystore, self.password, self.group)
