"""What decides about a gossipsub router: its parameters, under the names of the specification, and its bounds.

Source: libp2p "gossipsub" 1.0 ("Parameters") and 1.1 ("Peer scoring"); the values are those that Waku nodes use
(29/WAKU2-CONFIG, nwaku's relay). Times are seconds of a steady clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fairway.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreOptions:
    """How peers are judged: 1.1, "Peer scoring". Weights of what is bad are negative."""

    time_in_mesh_weight: float = 0.01
    """P1, for each second that a peer has been in a mesh."""
    time_in_mesh_cap_s: float = 10.0
    """Seconds after which P1 grows no more."""
    first_message_deliveries_weight: float = 1.0
    """P2, for each message that a peer was the first to bring."""
    first_message_deliveries_cap: float = 10.0
    """Messages after which P2 grows no more."""
    first_message_deliveries_decay: float = 0.5
    """What is left of P2's counter after a decay interval."""
    invalid_message_deliveries_weight: float = -100.0
    """P4, for the square of the number of invalid messages."""
    invalid_message_deliveries_decay: float = 0.5
    """What is left of P4's counter after a decay interval."""
    ip_colocation_weight: float = -50.0
    """P6, for the square of the number of peers of one address above the threshold."""
    ip_colocation_threshold: int = 20
    """Peers of one address that are nothing special; nwaku says 5, which a few nodes behind one NAT exceed."""
    behaviour_penalty_weight: float = -10.0
    """P7, for the square of the number of broken promises and of grafts during a backoff above the threshold."""
    behaviour_penalty_threshold: float = 2.0
    """Misdeeds that are forgiven."""
    behaviour_penalty_decay: float = 0.986
    """What is left of P7's counter after a decay interval."""
    decay_interval_s: float = 12.0
    """How often the counters decay."""
    decay_to_zero: float = 0.01
    """Counters below this are nothing."""
    retain_score_s: float = 600.0
    """How long the bad score of a peer that left is remembered."""
    gossip_threshold: float = -100.0
    """Below this no gossip is exchanged with a peer."""
    publish_threshold: float = -1_000.0
    """Below this own messages are not handed to a peer."""
    graylist_threshold: float = -10_000.0
    """Below this nothing that a peer says is heard, and it is parted with."""
    opportunistic_graft_threshold: float = 0.0
    """A mesh whose median score is below this takes in better peers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipsubOptions:
    """Parameters and bounds of a router."""

    d: int = 6
    """Peers that a mesh should have."""
    d_low: int = 4
    """With fewer a mesh takes in more."""
    d_high: int = 8
    """With more a mesh lets some go."""
    d_score: int = 6
    """Of those that stay when some are let go, so many are the best ones."""
    d_out: int = 3
    """Of those that stay, so many are peers that this node dialled: they are harder to arrange for an attacker."""
    d_lazy: int = 6
    """Peers outside the mesh that are told of messages, at least."""
    gossip_factor: float = 0.25
    """Share of the peers outside the mesh that are told of messages, if that is more."""
    heartbeat_interval_s: float = 1.0
    mcache_len: int = 6
    """Heartbeats for which messages can be asked for again."""
    mcache_gossip: int = 3
    """Heartbeats for which messages are told of."""
    fanout_ttl_s: float = 60.0
    """How long peers are remembered for a topic that was published on without a subscription."""
    seen_ttl_s: float = 120.0
    """How long a message counts as seen."""
    prune_backoff_s: float = 60.0
    """How long a pruned peer must wait before it grafts again."""
    unsubscribe_backoff_s: float = 5.0
    """The same after this node unsubscribed."""
    graft_flood_threshold_s: float = 10.0
    """A graft this soon after a prune counts twice."""
    flood_publish: bool = True
    """Whether own messages go to all peers of the topic rather than to the mesh alone."""
    opportunistic_graft_ticks: int = 60
    """Heartbeats between looks at the median score of a mesh."""
    opportunistic_graft_peers: int = 2
    iwant_followup_s: float = 3.0
    """How long a peer has for bringing what it told of."""
    max_ihave_length: int = 5_000
    """Message ids told to a peer, or asked from it, between heartbeats."""
    max_ihave_messages: int = 10
    """IHAVEs heard from a peer between heartbeats."""
    gossip_retransmission: int = 3
    """How often a peer may ask for one message."""

    max_rpc_bytes: int = 4_194_304
    """Length of an RPC."""
    max_data_bytes: int = 1_048_576
    """Length of the data of a message."""
    max_messages_per_rpc: int = 1_000
    max_control_per_rpc: int = 1_000
    """Subscriptions, and control messages of each kind, that are looked at in one RPC."""
    max_topics_per_peer: int = 1_024
    """Subscriptions of a peer that are remembered."""
    max_topic_bytes: int = 256
    max_id_bytes: int = 128
    """Length of a message id; a longer one is of nobody who speaks this protocol."""
    max_seen: int = 1_000_000
    """Messages that are remembered as seen."""
    max_cached_bytes: int = 67_108_864
    """Data of messages that can be asked for again."""
    max_outbox_bytes: int = 16_777_216
    """Messages that wait for one peer; beyond it the oldest give way."""
    max_waiting_bytes: int = 134_217_728
    """Messages that wait for all peers together, each counted once; beyond it those for the slowest peer give way."""
    max_backoffs: int = 100_000
    """Pairs of peer and topic that are remembered as pruned."""
    score: ScoreOptions = field(default_factory=ScoreOptions)

    def __post_init__(self) -> None:
        if not 0 <= self.d_low <= self.d <= self.d_high:
            raise ConfigurationError(
                f"a mesh needs 0 <= d_low <= d <= d_high, not {self.d_low}, {self.d} and {self.d_high}"
            )
        if self.d and not (self.d_out < max(self.d_low, 1) and self.d_out <= self.d // 2):
            raise ConfigurationError(f"d_out must be below d_low and at most d/2, not {self.d_out}")
        if not 0 < self.mcache_gossip <= self.mcache_len:
            raise ConfigurationError(
                f"the cache needs 0 < mcache_gossip <= mcache_len, not {self.mcache_gossip} and {self.mcache_len}"
            )
