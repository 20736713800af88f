"""The process of ``fairway node``: key, RLN, node, REST API, printed lines and log.

The first line is printed when the node serves; with ``as_json`` it has all that a program needs to reach the node. When
the process ends, every archived message is on the disk.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from ipaddress import ip_address
from pathlib import Path
from socket import gaierror
from typing import Any, Final

from fairway.cli._until_stopped import stop_event
from fairway.errors import ConfigurationError, StoreLockedError
from fairway.libp2p.errors import IdentityError
from fairway.libp2p.keeper import KeptPeer, KeptState
from fairway.libp2p.keys import IdentityKey, KeyType
from fairway.libp2p.transports.web_origins import is_loopback
from fairway.nodes.discovery.network import Network
from fairway.nodes.protocols.request_limiter import RequestRate
from fairway.owned_tasks import OwnedTasks
from fairway.rln.contract import ContractMembership
from fairway.rln.epochs import RlnNetwork
from fairway.rln.membership import RlnGroup, RlnMembership
from fairway.rln.membership_file import MembershipFile
from fairway.rln.slash_log import SlashLog
from fairway.service.archives import MAX_AGE_S, MIN_BYTES, Retention
from fairway.service.node import ServiceNode
from fairway.service.options import ServiceOptions
from fairway.service.proof_gate import ProofGate
from fairway.service.rest import RestOptions, RestServer
from fairway.storage.store_lock import StoreLock
from fairway.subscription import Subscription
from fairway.visible import visible

if sys.platform != "win32":
    import resource

_LOG: Final = logging.getLogger(__name__)
_ADDRESSES: Final = "give one of this machine: 127.0.0.1 for local programs, or 0.0.0.0 to allow other machines"
_OTHER_FILES: Final = 1_200
"""Open files beside libp2p's connections: REST API, archive, and the process itself."""
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)")
_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)(?:([kmgt])(i?))?b?", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The settings of a node process."""

    options: ServiceOptions
    rest: RestOptions | None = field(default_factory=RestOptions)
    """The REST API; None for none."""
    key: Path | None = None
    """File with the node's key, created if missing."""
    state: Path | None = None
    """Folder for that file if ``key`` is None; without both, the node has a new key at each start."""
    rln: NodeRln | None = None
    """The group whose members may send; None: no proofs are required."""
    until_stdin_closes: bool = False
    as_json: bool = False


async def serve(settings: NodeSettings, say: Callable[[str], None]) -> None:
    """Run a node until the process should stop.

    ``say`` is called with the lines to print. The log records when a configured peer connects, disconnects, or cannot
    be reached.

    Raises `ConfigurationError` for a port in use or an unusable key, and the errors of `ServiceNode.start`.
    """
    _check_host(settings.options.host)
    _allow_files(settings.options.host_limits.max_connections + _OTHER_FILES)
    async with (
        stop_event(until_stdin_closes=settings.until_stdin_closes) as stopped,
        AsyncExitStack() as exits,
    ):
        key, kept = None, settings.key
        if kept is not None:
            key = _key_in(kept)
        elif settings.state is not None:
            try:
                kept = exits.enter_context(_key_of_state(settings.state))
                key = _key_in(kept)
            except _NoStateError as error:
                _LOG.warning("the node has a new key and a new peer id: %s", error)
        gate, rln = None, None
        network = settings.options.network
        if settings.rln is not None:
            rln = settings.rln.membership(network, exits.enter_context(ExitStack()))
            gate = settings.rln.gate(network)
        elif network is not None and network.rln is not None:
            _LOG.warning("this network requires RLN proofs, and this node relays without verifying them: give --rln")
        with _listening(""):
            node = await exits.enter_async_context(
                await ServiceNode.start(settings.options, key=key, gate=gate, rln=rln)
            )
        rest = None
        if settings.rest is not None:
            with _listening(f"REST API at {settings.rest.host}:{settings.rest.port}: "):
                rest = await exits.enter_async_context(await RestServer.start(node, settings.rest))
            if not is_loopback(settings.rest.host) and settings.rest.token is None:
                _LOG.warning(
                    "the REST API is open to other machines: give --rest-token-file, or put a proxy in front of it"
                )
        said = introduction(node, rest, kept if key is not None else None)
        say(json.dumps(said) if settings.as_json else _for_people(said))
        tasks = OwnedTasks()
        exits.push_async_callback(tasks.close)
        tasks.spawn(_log_peers(node.watch_peers()))
        await stopped.wait()
        statistics = asdict(node.statistics())
        say(
            json.dumps({"statistics": statistics})
            if settings.as_json
            else ", ".join(f"{name.replace('_', ' ')} {number:,}" for name, number in statistics.items())
        )


def introduction(node: ServiceNode, rest: RestServer | None, key: Path | None = None) -> dict[str, Any]:
    """Return identity and addresses of a node as JSON types; ``key`` is the file that keeps its peer id."""
    return {
        "peer_id": str(node.peer_id),
        "multiaddrs": [str(address) for address in node.addresses],
        "listening": [str(address) for address in node.listening],
        "record": None if node.record is None else str(node.record),
        "rest": rest.url if rest else None,
        "cluster": node.options.cluster_id,
        "shards": list(node.options.shards),
        "key": None if key is None else str(key),
        "rln": node.verifies_proofs,
        "loss": node.options.loss,
    }


async def _log_peers(peers: Subscription[KeptPeer]) -> None:
    async for kept in peers:
        reason = kept.detail.removeprefix(f"cannot connect to {kept.address}: ")
        words = f"{kept.state.value}: {reason}" if reason else kept.state.value
        if kept.state is KeptState.CONNECTED:
            _LOG.info("peer %s: %s", kept.address, visible(words))
        else:
            _LOG.warning("peer %s: %s (trying on)", kept.address, visible(words))


def retention_of(keep: str | None, keep_size: str | None) -> Retention:
    """Return the retention of the options ``--keep`` and ``--keep-size``; None: the option is not given."""
    default = Retention()
    return Retention(
        max_age_s=default.max_age_s if keep is None else _duration(keep),
        max_bytes=None if keep_size is None else _size(keep_size),
        notice_s=default.notice_s if keep is None else 0.0,
    )


def _duration(text: str) -> float | None:
    """Return seconds from ``90s``, ``15m``, ``12h`` or ``30d``, None from ``forever``."""
    if text == "forever":
        return None
    found = _DURATION.fullmatch(text)
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not 0 < seconds <= MAX_AGE_S:
        raise ConfigurationError(f"--keep {text!r} is not a duration; give one like 12h or 30d, or 'forever'")
    return seconds


def _size(text: str) -> int:
    """Return bytes from ``500MB``, ``512MiB`` or ``20GB``."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ConfigurationError(f"--keep-size {text!r} is not a size; give one like 500MB or 20GB")
    size_bytes = float(found[1]) * (1_024.0 if found[3] else 1_000.0) ** _POWERS[(found[2] or "").lower()]
    if not MIN_BYTES <= size_bytes < math.inf:
        raise ConfigurationError(
            f"--keep-size {text} is {size_bytes:,.0f} bytes; give at least 1MiB ({MIN_BYTES:,} bytes)"
        )
    return round(size_bytes)


def request_rate(per_second: float) -> RequestRate | None:
    """Return the rate of requests for each peer, with a burst of twice as many; None for 0."""
    return RequestRate(per_second=per_second, burst=max(1, round(2 * per_second))) if per_second else None


def _allow_files(count: int) -> None:
    """Raise the limit of open files, as far as the system allows; each connection needs one."""
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return
    allowed = count if hard == resource.RLIM_INFINITY else min(count, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    if allowed < count:
        _LOG.warning(
            "the system allows %d open files, and %d may be needed: raise the limit (ulimit -n), or lower "
            "--max-connections",
            allowed,
            count,
        )


def _check_host(host: str) -> None:
    try:
        ip_address(host)
    except ValueError as error:
        raise ConfigurationError(f"a node listens at an IP address, not at {host!r}; {_ADDRESSES}") from error


@contextmanager
def _listening(where: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        not_here = error.errno == errno.EADDRNOTAVAIL or isinstance(error, gaierror)
        hint = _ADDRESSES if not_here else "0 for a port takes any free one"
        raise ConfigurationError(f"the node cannot listen: {where}{error}; {hint}") from error


class _NoStateError(Exception):
    """The folder of state cannot be used."""


@contextmanager
def _key_of_state(folder: Path) -> Iterator[Path]:
    """Yield the file of the node's key in a folder, locked against other nodes of this machine."""
    path = folder.absolute() / "node.key"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = StoreLock(path)
    except StoreLockedError:
        raise _NoStateError(f"another node runs with {path}; give each one a folder of its own with --state") from None
    except OSError as error:
        raise _NoStateError(f"{folder} cannot be used ({error.strerror}); name another one with --state") from error
    try:
        yield path
    finally:
        lock.release()


def _key_in(path: Path) -> IdentityKey:
    try:
        if path.exists():
            return IdentityKey.load(path)
        key = IdentityKey.generate(KeyType.SECP256K1)  # the kind that signs node records
        key.save(path)
    except (IdentityError, OSError) as error:
        raise ConfigurationError(
            f"{path} cannot be used as a key: {error}; give a key of 'fairway node', or the path of a new file"
        ) from error
    return key


def _for_people(said: dict[str, Any]) -> str:
    tcp = [address for address in said["multiaddrs"] if "/ws" not in address]
    plain = [address.partition("/p2p/")[0] for address in said["multiaddrs"]]
    elsewhere = [address for address in said["listening"] if address not in plain]
    # Programs of this machine use the loopback address; other addresses are announced to others.
    here = [
        address.replace("/ip4/0.0.0.0/", "/ip4/127.0.0.1/").replace("/ip6/::/", "/ip6/::1/")
        for address in said["listening"]
        if "/ws" not in address
    ]
    lines = [
        f"node {said['peer_id']}",
        f"cluster {said['cluster']}, shards {', '.join(map(str, said['shards']))}",
        *(f"  TCP        {address}" for address in tcp),
        *(f"  WebSocket  {address}" for address in said["multiaddrs"] if address not in tcp),
        *(["  RLN        messages need a proof of membership"] if said["rln"] else []),
        *([f"  loss       {said['loss']:.0%} of messages are dropped on purpose (--loss)"] if said["loss"] else []),
        *([f"  listening  {', '.join(elsewhere)}"] if elsewhere else []),
        *([f"  record     {said['record']}"] if said["record"] else []),
        *([f"  REST       {said['rest']} (status page; API at /docs)"] if said["rest"] else []),
        *(f"in other terminals: export FAIRWAY_NODE={address}/p2p/{said['peer_id']}" for address in here),
        f"its key, and so its peer id, is kept in {said['key']}" if said["key"] else "its peer id is new at each start",
        "Ctrl-C ends it",
    ]
    return "\n".join(lines)


CONTRACT: Final = "contract"
"""Value of --rln for the contract of the network."""
RPC_VARIABLE: Final = "FAIRWAY_RLN_RPC"
"""Variable with the address of a node of the chain; an argument would show a key in it to other users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRln:
    """The RLN group of a node, and its own membership."""

    group: str
    """Path of a group's file, or `CONTRACT`."""
    slash_log: Path | None = None
    """File for the secrets that double signals reveal."""
    keystore: Path | None = None
    """The node's own membership."""
    password: str = field(default="", repr=False)
    """Of the keystore."""

    def gate(self, network: Network | None) -> ProofGate:
        """Return the gate that verifies proofs.

        Raises `ConfigurationError` for a group of another network, a `StorageError` for unusable files, and
        `MissingExtraError` without fairway-rln.
        """
        record = None if self.slash_log is None else SlashLog(self.slash_log).record
        return ProofGate(self._open(network), record=record)

    def membership(self, network: Network | None, exits: ExitStack) -> RlnMembership | None:
        """Return the node's own membership; raises as `gate` does, and `WrongPasswordError`."""
        if self.keystore is None:
            return None
        return exits.enter_context(RlnMembership.load(self.keystore, self.password, self._open(network)))

    def _open(self, network: Network | None) -> RlnGroup:
        asked = None if network is None else network.rln
        epoch_ms = None if asked is None else asked.epoch_s * 1_000
        if self.group != CONTRACT:
            kept = MembershipFile(self.group)
            if epoch_ms not in {None, kept.network.epoch_ms}:
                raise ConfigurationError(
                    f"the network has epochs of {epoch_ms} ms, the group in {self.group} has {kept.network.epoch_ms}: "
                    "give the network's own group"
                )
            return kept
        if asked is None or asked.contract is None:
            raise ConfigurationError(f"--rln {CONTRACT} needs --network with a network that names one, such as twn")
        rpc = os.environ.get(RPC_VARIABLE)
        if not rpc:
            raise ConfigurationError(f"--rln {CONTRACT} needs {RPC_VARIABLE}, the address of a node of its chain")
        return ContractMembership(
            rpc, asked.contract, chain_id=asked.chain_id, network=RlnNetwork(epoch_ms=asked.epoch_s * 1_000)
        )
