"""`create_reliable_channel` makes a channel (RELIABLE-CHANNEL-API, "Create Reliable Channel")."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from typing import Any

from fairway.channel.clock import Clock
from fairway.channel.reliable_channel import ReliableChannel
from fairway.errors import ConfigurationError
from fairway.events import MessageReceived
from fairway.group_keys import GroupKeys
from fairway.identity import Identity, Members
from fairway.nodes.node import NetworkRules, WakuNode
from fairway.opening import Opening
from fairway.options import Receive, ReliableChannelOptions
from fairway.protocol.encryption import Decoder, Encoder, Encryption, check_encryption
from fairway.protocol.encryption.epochs import Roster
from fairway.protocol.encryption.payload_v1 import PayloadCipher, PayloadKeyRing
from fairway.protocol.ratelimit import RlnProofProvider
from fairway.protocol.signing import Signing
from fairway.protocol.signing.keys import SECP256K1
from fairway.storage.channel_store import ChannelStore
from fairway.storage.memory_store import MemoryStore
from fairway.storage.sqlite_store import SqliteStore
from fairway.type_checks import check_callback, check_type


def create_reliable_channel(
    node: WakuNode,
    channel_id: str,
    sender_id: str,
    content_topic: str | None = None,
    *,
    encryption: Encryption | None = None,
    encoder: Encoder | None = None,
    decoder: Decoder | None = None,
    options: ReliableChannelOptions | Mapping[str, Any] | None = None,
    store: str | PathLike[str] | ChannelStore | None = None,
    receive: Receive | Callable[[MessageReceived], object] = Receive.LOOP,
    identity: Identity | None = None,
    members: Members | Mapping[str, bytes | str] | None = None,
    require_signatures: bool | None = None,
    rln: RlnProofProvider | None = None,
    clock: Clock | None = None,
) -> Opening[ReliableChannel]:
    """Make a channel and start it, unless ``options.auto_start`` is off; for ``await`` or ``async with``.

    RELIABLE-CHANNEL-API, "Create Reliable Channel".

    ``node`` connects the channel; closing the channel does not close it. If the node knows its network, that network's
    cluster, shards and longest message override the options.

    ``channel_id``, ``content_topic`` (such as ``/my-app/1/team/proto``) and ``encryption`` MUST be the same for all
    participants. ``sender_id`` names this participant: it SHOULD be unique, and the same in every run. An ``encoder``
    and a ``decoder`` can replace ``content_topic`` and ``encryption``. ``options`` can be a mapping, such as one from
    JSON. ``store`` is the path of the file that keeps the state over restarts, or a `ChannelStore`; without it the
    state is in memory only. ``receive`` selects how the application receives messages. By default it reads ``async for
    message in channel``. A function or coroutine function of a `MessageReceived` becomes the handler of messages. With
    `Receive.EVENTS` the application reads ``channel.events()``. ``rln`` provides rate limit proofs, by default that of
    the node; ``clock`` returns Unix milliseconds. The first listeners get all events from the start on.

    ``identity`` signs the messages of this participant. ``members`` has the public keys of the others: a message under
    the name of a member is refused unless its key signed it. ``require_signatures`` refuses the messages of all other
    names, too; by default a channel with ``members`` does so (docs/identity.md). With `GroupKeys` as ``encryption``,
    identity and members are those of the group (docs/group-keys.md).

    Raises `ConfigurationError` for arguments that cannot work, a `StorageError` if the store cannot be used, and
    `NodeUnavailableError` if the node is closed.
    """
    check_type("node", node, WakuNode, "fairway.connect(...) makes one")
    check_type("encoder", encoder, Encoder | None)
    check_type("decoder", decoder, Decoder | None)
    check_type("rln", rln, RlnProofProvider | None)
    if not isinstance(receive, Receive):
        check_callback("receive", receive, "a message")
    if clock is not None:
        check_callback("clock", clock)
        check_type("what clock returns", clock(), int, "it returns Unix milliseconds")
    if encoder is not None or decoder is not None:
        content_topic, encryption = _of_pair(encoder, decoder, content_topic, encryption)
    check_type("content_topic", content_topic, str, "give one such as /my-app/1/team/proto")
    assert content_topic is not None, "it was checked"
    check_encryption(encryption)
    known: Members | Roster | Mapping[str, bytes | str] | None = members
    if isinstance(encryption, GroupKeys):
        identity, known = _of_group(encryption, sender_id, identity, members)
    signing = _signing_of(channel_id, sender_id, identity, known, require_signatures)
    if identity is not None and isinstance(encryption, PayloadCipher | PayloadKeyRing):
        encryption = _signed_payloads(encryption, identity)
    channel = ReliableChannel(
        node,
        channel_id,
        sender_id,
        content_topic,
        options=_in_network(options_of(options), node.network),
        store=_store_of(store),
        receive=receive,
        encryption=encryption,
        signing=signing,
        rln=rln,
        clock=clock,
    )
    return Opening(_opened(channel), "fairway.create_reliable_channel")


async def _opened(channel: ReliableChannel) -> ReliableChannel:
    if channel.options.auto_start:
        await channel.start()
    return channel


def options_of(options: ReliableChannelOptions | Mapping[str, Any] | None) -> ReliableChannelOptions:
    """Return options that can be a mapping, or None for the defaults."""
    check_type("options", options, ReliableChannelOptions | Mapping | None, "ReliableChannelOptions() has the defaults")
    if options is None:
        return ReliableChannelOptions()
    return ReliableChannelOptions.from_mapping(options) if isinstance(options, Mapping) else options


def _in_network(options: ReliableChannelOptions, network: NetworkRules | None) -> ReliableChannelOptions:
    """Return options with the cluster, shards and message size of the node's network.

    Raises `ConfigurationError` for another cluster or another number of shards than the network has.
    """
    if network is None:
        return options
    defaults = ReliableChannelOptions()
    for name in ("cluster_id", "shard_count"):
        given, prescribed = getattr(options, name), getattr(network, name)
        if given not in {prescribed, getattr(defaults, name)}:
            raise ConfigurationError(
                f"{name} of the options is {given}, and that of the node's network {prescribed}; leave it out"
            )
    short = max(0, options.advanced.max_wire_message_bytes - network.max_message_bytes)
    segment = options.segmentation.segment_size_bytes
    return replace(
        options,
        cluster_id=network.cluster_id,
        shard_count=network.shard_count,
        advanced=replace(options.advanced, max_wire_message_bytes=options.advanced.max_wire_message_bytes - short),
        # The overhead of a segment is kept, unless less than a quarter of a message remains for its content.
        segmentation=replace(
            options.segmentation,
            segment_size_bytes=min(segment, max(segment - short, network.max_message_bytes // 4)),
        ),
    )


def _signing_of(
    channel_id: str,
    sender_id: str,
    identity: Identity | None,
    members: Members | Roster | Mapping[str, bytes | str] | None,
    require_signatures: bool | None,
) -> Signing | None:
    """Return the signatures of a channel; None if it has no identity and no members."""
    check_type("identity", identity, Identity | None, "Identity.load(path) reads one")
    check_type("members", members, Members | Roster | Mapping | None, "give public keys by sender id")
    check_type("require_signatures", require_signatures, bool | None)
    known = Members(members) if isinstance(members, Mapping) else members
    required = known is not None if require_signatures is None else require_signatures
    if required and known is None:
        raise ConfigurationError("require_signatures needs members with the keys of the others")
    own = None if known is None else known.get(sender_id)
    if identity is None and (required or own is not None):
        raise ConfigurationError(
            f"the other members refuse unsigned messages of {sender_id!r}: give its identity (--identity FILE), or "
            "require_signatures=False (--accept-unsigned) if others accept that name without a key"
        )
    if identity is not None and own not in {None, identity.public_key}:
        raise ConfigurationError(f"the members have another key for {sender_id!r} than its identity, {identity}")
    if identity is None and known is None:
        return None
    return Signing(channel_id, sender_id, identity, known, required=required)


def _of_group(group: GroupKeys, sender_id: str, identity: Identity | None, members: object) -> tuple[Identity, Roster]:
    """Return the identity and the members of a group; raise `ConfigurationError` if others are given."""
    if members is not None or (identity is not None and identity.public_key != group.identity.public_key):
        raise ConfigurationError("a group has its identity and its members: leave out identity and members")
    own = next(
        (entry.name for entry in group.roster.present if entry.public_key == group.identity.public_key), sender_id
    )
    if own != sender_id:
        raise ConfigurationError(
            f"this member has the name {own!r} in the group: give it as sender_id, not {sender_id!r}"
        )
    return group.identity, group.roster


def _signed_payloads(cipher: PayloadCipher | PayloadKeyRing, identity: Identity) -> PayloadCipher | PayloadKeyRing:
    """Return a cipher of 26/WAKU2-PAYLOAD whose payloads an identity with a secp256k1 key signs, for js-waku."""
    if identity.kind != SECP256K1 or cipher.signer_public_key is not None:
        return cipher
    return cipher.signing_with(identity.secret)


def _store_of(store: str | PathLike[str] | ChannelStore | None) -> ChannelStore:
    check_type("store", store, str | PathLike | ChannelStore | None, "give the path of a file")
    if store is None:
        return MemoryStore()
    return store if isinstance(store, ChannelStore) else SqliteStore(store)


def _of_pair(
    encoder: Encoder | None, decoder: Decoder | None, content_topic: str | None, encryption: Encryption | None
) -> tuple[str, Encryption | None]:
    """Return the content topic and the encryption of an encoder and a decoder, which must agree on both."""
    if encoder is None or decoder is None:
        raise ConfigurationError("an encoder and a decoder go together: give both, or content_topic and encryption")
    if content_topic is not None or encryption is not None:
        raise ConfigurationError("give either encoder and decoder, or content_topic and encryption, not both")
    if encoder.ephemeral:
        raise ConfigurationError(
            "the messages of a reliable channel are not ephemeral, because stores must keep them: give an encoder "
            "without ephemeral=True, and use send_ephemeral for messages that may be lost"
        )
    if encoder.content_topic != decoder.content_topic:
        raise ConfigurationError(
            f"encoder and decoder must have one content topic, not {encoder.content_topic} and {decoder.content_topic}"
        )
    if encoder.encryption is decoder.encryption:
        return encoder.content_topic, encoder.encryption
    if encoder.encryption is None or decoder.encryption is None:
        raise ConfigurationError("encoder and decoder must both encrypt, or neither")
    if isinstance(encoder.encryption, PayloadCipher) and isinstance(decoder.encryption, PayloadCipher):
        return encoder.content_topic, PayloadKeyRing(decoder.encryption, encrypt_with=encoder.encryption)
    return encoder.content_topic, _Pair(encoder.encryption, decoder.encryption)


class _Pair:
    """An encryption that encrypts with one cipher and decrypts with another."""

    def __init__(self, encrypting: Encryption, opening: Encryption) -> None:
        self.encrypt = encrypting.encrypt
        self.decrypt = opening.decrypt
        self.waku_version = getattr(encrypting, "waku_version", 0)
