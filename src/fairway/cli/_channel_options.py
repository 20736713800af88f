"""The options of all commands with a channel, and the settings that they give."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

import typer

from fairway.cli._password import PASSWORD_VARIABLE, password_of
from fairway.cli._settings import ChannelSettings, MemberRln, key_in, load_options, shared_key
from fairway.errors import ConfigurationError
from fairway.group_keys import GroupKeys
from fairway.identity import Identity, Members
from fairway.options import Profile
from fairway.protocol.encryption import Encryption
from fairway.wire.topics import CLUSTER_COUNT, SHARDS_PER_CLUSTER

_taking_part = partial(typer.Option, rich_help_panel="Taking part")
_tuning = partial(typer.Option, rich_help_panel="Tuning")

_OPTIONS: Final[dict[str, Any]] = {
    "node": Annotated[
        str | None,
        _taking_part(
            "--node",
            metavar="ADDRESS",
            envvar="FAIRWAY_NODE",
            help="The node: a multiaddr that 'fairway node' prints, like /ip4/127.0.0.1/tcp/60000/p2p/16Uiu2..., "
            "or http://127.0.0.1:8645 of a REST API.",
        ),
    ],
    "ca": Annotated[
        Path | None,
        _taking_part(
            "--ca",
            metavar="FILE",
            envvar="FAIRWAY_CA",
            help="Certificate authorities (PEM) to trust beside the system's, for a node at https:// or /tls/ws.",
        ),
    ],
    "channel": Annotated[
        str | None,
        _taking_part(
            "--channel", metavar="NAME", envvar="FAIRWAY_CHANNEL", help="The channel, the same for all participants."
        ),
    ],
    "sender": Annotated[
        str | None,
        _taking_part(
            "--sender",
            metavar="NAME",
            envvar="FAIRWAY_SENDER",
            help="Your sender id: unique in the channel, and the same at every start.",
        ),
    ],
    "topic": Annotated[
        str | None,
        _taking_part(
            "--topic",
            metavar="TOPIC",
            help="Content topic, the same for all participants; by default /fairway/1/CHANNEL/proto.",
        ),
    ],
    "cluster": Annotated[
        int | None,
        _taking_part(
            "--cluster",
            metavar="NUMBER",
            min=0,
            max=CLUSTER_COUNT - 1,
            envvar="FAIRWAY_CLUSTER",
            help="Cluster of the network, by default 1, The Waku Network.",
        ),
    ],
    "shards": Annotated[
        int | None,
        _taking_part(
            "--shards",
            metavar="NUMBER",
            min=1,
            max=SHARDS_PER_CLUSTER,
            envvar="FAIRWAY_SHARDS",
            help="Number of network shards in the cluster, by default 8.",
        ),
    ],
    "store": Annotated[
        Path | None,
        _taking_part(
            "--store",
            metavar="PATH",
            envvar="FAIRWAY_STORE",
            help="File that keeps the channel's state over restarts; without it the state is in memory.",
        ),
    ],
    "rln": Annotated[
        Path | None,
        _taking_part(
            "--rln",
            metavar="FILE",
            envvar="FAIRWAY_RLN_GROUP",
            help="Group of a network with RLN proofs, a file of 'fairway rln group'.",
        ),
    ],
    "rln_keystore": Annotated[
        Path | None,
        _taking_part(
            "--rln-keystore",
            metavar="FILE",
            envvar="FAIRWAY_RLN_KEYSTORE",
            help="Keystore with your membership in it; its password comes from "
            f"${PASSWORD_VARIABLE}, or you are asked.",
        ),
    ],
    "key_file": Annotated[
        Path | None,
        _taking_part(
            "--key-file",
            metavar="FILE",
            envvar="FAIRWAY_KEY_FILE",
            help="File with the key of the group, as 'openssl rand -hex 32' prints it, for AES-256-GCM as in "
            "26/WAKU2-PAYLOAD. FAIRWAY_KEY can hold the key itself.",
        ),
    ],
    "identity": Annotated[
        Path | None,
        _taking_part(
            "--identity",
            metavar="FILE",
            envvar="FAIRWAY_IDENTITY",
            help="Your private key, a file of 'fairway identity new': your messages are signed.",
        ),
    ],
    "members": Annotated[
        Path | None,
        _taking_part(
            "--members",
            metavar="FILE",
            envvar="FAIRWAY_MEMBERS",
            help="Public keys of the members, a file of 'fairway identity trust'; only messages that they signed are "
            "accepted.",
        ),
    ],
    "trust_on_first_use": Annotated[
        Path | None,
        _taking_part(
            "--trust-on-first-use",
            metavar="FILE",
            envvar="FAIRWAY_TRUST_ON_FIRST_USE",
            help="In place of --members: the first key of each name is trusted, and kept in this file.",
        ),
    ],
    "accept_unsigned": Annotated[
        bool | None,
        _taking_part("--accept-unsigned", help="Also accept messages of names that have no key in your list."),
    ],
    "group": Annotated[
        Path | None,
        _taking_part(
            "--group",
            metavar="FILE",
            envvar="FAIRWAY_GROUP",
            help="Your keys of a group, a file of 'fairway group', with --identity and in place of a key and members.",
        ),
    ],
    "profile": Annotated[
        Profile | None,
        _tuning("--profile", help="Wire format of the channel; by default waku."),
    ],
    "options": Annotated[
        str | None,
        _tuning(
            "--options",
            metavar="JSON|FILE",
            help="""ReliableChannelOptions as JSON, such as '{"retry_interval_ms": 5000}', or a file with it.""",
        ),
    ],
}


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the first parameter of a command, its settings, by the options above.

    Signature and annotations, which typer reads, list these options after the command's own.
    """
    hints = get_type_hints(command, include_extras=True)
    own = list(signature(command).parameters.values())[1:]
    kind = Parameter.KEYWORD_ONLY
    added = [Parameter(name, kind, default=None, annotation=hint) for name, hint in _OPTIONS.items()]

    @wraps(command)
    def wrapper(**given: Any) -> None:
        options = {name: given.pop(name) for name in _OPTIONS}
        command(_settings_of(options), **given)

    described: Any = wrapper
    described.__signature__ = Signature([*(each.replace(annotation=hints[each.name]) for each in own), *added])
    described.__annotations__ = {each.name: hints[each.name] for each in own} | _OPTIONS | {"return": None}
    return wrapper


def _settings_of(given: dict[str, Any]) -> ChannelSettings:
    """Return the settings of the options by name; raise `ConfigurationError` if one is missing or wrong."""
    node, channel, sender = given["node"], given["channel"], given["sender"]
    return ChannelSettings(
        node=_given(node, "--node", "FAIRWAY_NODE", "run 'fairway node' in another terminal to have one"),
        tls_ca_file=given["ca"],
        channel_id=_given(channel, "--channel", "FAIRWAY_CHANNEL", "any name that all participants use"),
        sender_id=_given(sender, "--sender", "FAIRWAY_SENDER", "a name that no other participant of the channel has"),
        content_topic=given["topic"],
        store=given["store"],
        rln=_membership(given["rln"], given["rln_keystore"]),
        options=load_options(
            given["options"],
            profile=given["profile"],
            node=node,
            cluster_id=given["cluster"],
            shard_count=given["shards"],
        ),
        encryption=_cipher(given["key_file"]) if given["group"] is None else _group(given),
        identity=None if given["identity"] is None else Identity.load(given["identity"]),
        members=_members(given["members"], given["trust_on_first_use"]),
        accepts_unsigned=bool(given["accept_unsigned"]),
    )


def _members(listed: Path | None, learned: Path | None) -> Members | None:
    if listed is not None and learned is not None:
        raise ConfigurationError("give either --members or --trust-on-first-use: each names the file with the keys")
    if learned is not None:
        return Members.trust_on_first_use(learned)
    return None if listed is None else Members.load(listed)


def _membership(group: Path | None, keystore: Path | None) -> MemberRln | None:
    if group is None and keystore is None:
        return None
    if group is None or keystore is None:
        raise ConfigurationError("a membership is a group and a keystore: give --rln FILE and --rln-keystore FILE")
    return MemberRln(group=group, keystore=keystore, password=password_of(None))


def _cipher(file: Path | None) -> Encryption | None:
    text = key_in(file) if file is not None else os.environ.get("FAIRWAY_KEY") or None
    return None if text is None else shared_key(text)


def _group(given: dict[str, Any]) -> GroupKeys:
    if given["identity"] is None or any(
        given[name] is not None for name in ("key_file", "members", "trust_on_first_use")
    ):
        raise ConfigurationError("--group needs --identity, and takes the place of --key-file and of a list of members")
    return GroupKeys.load(given["group"], Identity.load(given["identity"]))


def _given(value: str | None, option: str, variable: str, hint: str) -> str:
    if not value:
        raise ConfigurationError(f"{option} is missing; give it, or set {variable}: {hint}")
    return value
