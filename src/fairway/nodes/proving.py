"""Calls RLN proof providers from asyncio: on a thread of the provider, one call at a time, in the order of the calls.

A proof takes 0.1 s or more and writes to the disk, so it must not run on the event loop. All users of a
provider, such as the channels of a membership, share its thread. A provider that can `prepare` does so there first.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from msgspec import structs

from fairway.environment import time_ns
from fairway.errors import RlnError, RlnErrorKind
from fairway.foreign_code import call_in_thread
from fairway.nodes.node import RoutedMessage, SendResult
from fairway.protocol.ratelimit import EpochQuota, RlnProofProvider, rln_signal
from fairway.units import NS_PER_MS
from fairway.wire.waku_message import encode_waku_message

_THREADS: Final[WeakKeyDictionary[RlnProofProvider, ThreadPoolExecutor]] = WeakKeyDictionary()
"""The thread of each provider in use; it ends when the provider is collected."""


@runtime_checkable
class PreparingProvider(Protocol):
    """A provider whose first proof takes longer unless it has computed something before."""

    def prepare(self) -> None:
        """Compute it; called once, in the provider's thread. No call waits for it."""


def prepare_soon(provider: RlnProofProvider | None) -> None:
    """Start the thread of a provider, so that its preparation ends before the first proof."""
    if provider is not None:
        _thread_of(provider)


async def proof_of(provider: RlnProofProvider, signal: bytes, now_ms: int) -> bytes | None:
    """Return the proof that a provider makes for a signal in the epoch of ``now_ms``; None if it makes none.

    Raises `RlnError`, also if the provider raises another exception or returns an invalid value.
    """
    try:
        proof: object = await call_in_thread(
            _thread_of(provider), "generate_proof", provider.generate_proof, signal, now_ms
        )
    except RlnError:
        raise
    except Exception as cause:
        # An accepted message must survive an exception of the provider.
        raise RlnError(RlnErrorKind.TRANSIENT, f"the provider raised {type(cause).__name__}") from cause
    if proof is None or isinstance(proof, bytes):
        return proof
    if asyncio.iscoroutine(proof):
        proof.close()
    raise RlnError(
        RlnErrorKind.PERMANENT,
        f"generate_proof returned {type(proof).__name__}, not bytes or None: it is called in a thread of its own, and "
        "must return the proof",
    )


async def quota_of(provider: RlnProofProvider, now_ms: int) -> EpochQuota | None:
    """Return the quota that a provider names for the epoch of ``now_ms``. Raises `RlnError` if it names none now."""
    try:
        quota: object = await call_in_thread(_thread_of(provider), "epoch_quota", provider.epoch_quota, now_ms)
    except RlnError:
        raise
    except Exception as cause:
        raise RlnError(RlnErrorKind.TRANSIENT, f"the provider raised {type(cause).__name__}") from cause
    if quota is None or isinstance(quota, EpochQuota):
        return quota
    raise RlnError(RlnErrorKind.PERMANENT, f"epoch_quota returned {type(quota).__name__}, not an EpochQuota or None")


async def with_proof(provider: RlnProofProvider | None, message: RoutedMessage) -> RoutedMessage | SendResult:
    """Return a message with a proof for the present epoch, or a failed result if the provider makes none.

    Without a provider the message is returned unchanged. So is a message that has a proof, such as those of channels. A
    proof does not change the message hash.
    """
    bare = message.message
    if provider is None or bare.rate_limit_proof:
        return message
    signal = rln_signal(bare.payload, bare.content_topic, bare.timestamp_ns or 0)
    try:
        proof = await proof_of(provider, signal, time_ns() // NS_PER_MS)
    except RlnError as error:
        return SendResult(
            accepted=False,
            permanent=error.kind is RlnErrorKind.PERMANENT,
            too_many=error.kind is RlnErrorKind.BUDGET_EXHAUSTED,
            detail=str(error),
        )
    proven = structs.replace(bare, rate_limit_proof=proof)
    return replace(message, message=proven, encoded=encode_waku_message(proven))


def _thread_of(provider: RlnProofProvider) -> ThreadPoolExecutor:
    thread = _THREADS.get(provider)
    if thread is None:
        thread = _THREADS[provider] = ThreadPoolExecutor(1, "rln-prover")
        if isinstance(provider, PreparingProvider):
            thread.submit(provider.prepare)
    return thread
