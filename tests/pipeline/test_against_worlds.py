"""The pipeline over the archives of simulated worlds, held against the protocol core itself and against the truth.

The core's answer is that of a reader: a participant without a past (`Stack`) that is given the archive's messages and
nothing else, and waits until it gives up what is missing. All worlds, of either wire, are in one archive, told apart by
their channels, so that Spark runs once. ``pytest --seed`` moves all seeds, for soak runs.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.compute as pc

from fairway.events import IrretrievableMessage, MessageReceived
from fairway.options import Delivery, Profile, SdsConfig
from fairway.pipeline import stages
from fairway.pipeline.sources import open_source
from fairway.pipeline.stages.bloom_evidence import evidence_mapper, filter_mapper
from fairway.pipeline.stages.reassembled import ARCHIVE_SEGMENTATION
from fairway.protocol.effects import Emit
from fairway.protocol.stack import Stack
from fairway.simulation import Plan, Trouble, World, replay_command
from fairway.simulation.world import CONTENT_TOPIC
from fairway.storage.nwaku_archive import NwakuArchive

pytestmark = [pytest.mark.spark, pytest.mark.full]

WORLDS = 12
"""For each profile."""
MINUTE_MS = 60_000
PARITY_RATE = 0.5
"""Of all participants, who have to agree on it: a receiver must know it to know the ids of lost parity segments."""


def world_of(seed, profile):
    """Two minutes of busy talk; what else happens depends on the seed. Every second store has gaps."""
    rng = random.Random(f"{seed}/{profile.value}")
    kinds = (Trouble.DUPLICATE, Trouble.CRASH, Trouble.ABSENCE, Trouble.JOIN, Trouble.LEAVE, Trouble.PARTITION)
    troubles = {kind for kind in kinds if rng.random() < 0.5} | ({Trouble.STORE_GAPS} if seed % 2 else set())
    plan = Plan(
        participants=rng.randint(3, 4),
        duration_ms=2 * MINUTE_MS,
        loss=rng.choice([0, 0.3, 0.5]),
        seed=seed,
        profile=profile,
        messages_per_hour=rng.choice([120, 240]),
        troubles=frozenset(troubles),
    )
    options = plan.options()
    segmentation = replace(options.segmentation, segment_size_bytes=320, parity_rate=PARITY_RATE)
    options = replace(options, segmentation=segmentation, sds=replace(options.sds, bloom_capacity=500))
    return World(plan, options=options, channel_id=f"{profile.value}-{seed}")


@dataclass
class Answer:
    """What somebody makes of the archive of one channel."""

    delivered: Counter = field(default_factory=Counter)
    """How often each (sender, logical message id) was delivered."""
    log: list = field(default_factory=list)
    """Ids of the SDS messages that are there, in the order of the log."""
    missing: set = field(default_factory=set)
    """Ids of SDS messages that are cited and neither there nor rebuilt."""
    waiting: dict = field(default_factory=dict)
    """For each SDS message that waits for others: those, in the end; of the pipeline the one that it tells."""
    computed: set = field(default_factory=set)
    """Ids of lost segments of whole messages, certain or guessed; told by the pipeline alone."""


def core_answer(run, messages):
    """Return what a participant without a past makes of an archive that is all it ever hears."""
    options = replace(run.options, delivery=Delivery.CAUSAL)
    now_ms = run.clock_ns() // 1_000_000
    reader = Stack(run.channel_id, "reader", CONTENT_TOPIC, options, now_ms=now_ms, seed=b"reader of an archive")
    events = []

    def keep(effects):
        events.extend(effect.event for effect in effects if isinstance(effect, Emit))

    for message in messages:
        keep(reader.receive(message, now_ms))
    missing_behind = reader.sds.dependencies.incoming.missing_behind
    waiting = {message_id: set(missing_behind(parked)) for message_id, parked in reader.sds.parked.items()}
    end_ms = now_ms + 10 * options.sds.lost_timeout_ms
    while (reader.statistics().missing or reader.statistics().parked) and now_ms < end_ms:
        # Waiting counts only as far as it is seen to pass.
        now_ms = max(now_ms + 1, reader.next_deadline() or end_ms)
        keep(reader.tick(now_ms))
    assert (reader.statistics().missing, reader.statistics().parked) == (0, 0)
    answer = Answer(log=[record.message_id for record in reader.sds.history], waiting=waiting)
    for event in events:
        if isinstance(event, MessageReceived):
            answer.delivered[event.sender_id, event.message_id] += 1
        # A set of segments that gets no further is told in the same way, under its payload hash.
        elif isinstance(event, IrretrievableMessage) and event.message_id in reader.sds.dependencies.settled:
            answer.missing.add(event.message_id)
    return answer


def pipeline_answers(spark, path):
    """Return what the pipeline makes of each channel of an archive."""
    waku_messages = stages.deduplicated(open_source(spark, f"sqlite:{path}"), unique=True)
    unique = stages.sds_messages(stages.decoded(waku_messages)).persist()
    config = replace(ARCHIVE_SEGMENTATION, parity_rate=PARITY_RATE)
    reassembled = stages.reassembled(unique, config=config).persist()
    delivered = stages.delivered(unique, reassembled)
    missing = stages.missing_messages(unique, reassembled)
    answers = {}
    for row in delivered.select("channel_id", "sender_id", "message_id").collect():
        answers.setdefault(row.channel_id, Answer()).delivered[row.sender_id, row.message_id] += 1
    for row in missing.select("channel_id", "message_id").collect():
        answers.setdefault(row.channel_id, Answer()).missing.add(row.message_id)
    ordered = stages.sds_ordered(unique, missing, reassembled)
    for row in (
        ordered.select("channel_id", "position", "message_id", "status", "waits_for").orderBy("position").collect()
    ):
        answer = answers.setdefault(row.channel_id, Answer())
        answer.log.append(row.message_id)
        if row.status != "complete":
            assert row.status == "waiting"
            answer.waiting[row.message_id] = row.waits_for
    for row in reassembled.select("channel_id", "rebuilt_ids", "guessed_ids").collect():
        answers.setdefault(row.channel_id, Answer()).computed.update(row.rebuilt_ids, row.guessed_ids)
    unique.unpersist()
    reassembled.unpersist()
    return answers


@pytest.fixture(scope="module")
def archived(tmp_path_factory, seed):
    """Run the worlds, and give them, the core's answers, and the path of their archive."""
    runs = [world_of(seed + number, profile) for profile in Profile for number in range(WORLDS)]
    path = tmp_path_factory.mktemp("worlds") / "store.sqlite3"
    cores = []
    with NwakuArchive(path) as archive:
        for run in runs:
            run.run()
            for publication in run.stored:
                archive.append(publication.pubsub_topic, publication.message, publication.message_hash)
            publications = sorted(run.stored, key=lambda one: (one.message.timestamp_ns, one.message_hash))
            cores.append(core_answer(run, [publication.message for publication in publications]))
    return runs, cores, path


@pytest.fixture(scope="module")
def worlds(spark, archived):
    """Give each world with the core's answer and the pipeline's."""
    runs, cores, path = archived
    answers = pipeline_answers(spark, path)
    return [(run, core, answers.get(run.channel_id, Answer())) for run, core in zip(runs, cores, strict=True)]


def log_of(participant):
    """Return the ids of the messages that the store of a participant has in its log, in their order."""
    rows = participant.kept.rows.items()
    return [key for _, key in sorted((row[0], key) for (table, key), row in rows if table == "history")]


def replay(run):
    return f"world {run.channel_id}; replay: {replay_command(run.plan)}"


def test_the_same_messages_are_delivered_as_by_the_core(worlds):
    for run, core, pipeline in worlds:
        assert pipeline.delivered == core.delivered, replay(run)


def test_the_same_messages_are_missing_as_for_the_core(worlds):
    for run, core, pipeline in worlds:
        assert core.missing <= pipeline.missing, replay(run)
        # The core declares no possible lost segment of a complete message lost; the pipeline counts the guessed ones.
        assert pipeline.missing - core.missing <= pipeline.computed, replay(run)


def test_the_same_messages_wait_as_in_the_core_before_it_gives_up(worlds):
    """But the core settles what a message lacks when it becomes whole; what comes later may tell more of it."""
    waiting, same = 0, 0
    for run, core, pipeline in worlds:
        waiting += len(core.waiting)
        same += len(pipeline.waiting)
        assert pipeline.waiting.keys() <= core.waiting.keys(), replay(run)
        for message_id, behind in core.waiting.items():
            known = behind <= pipeline.computed
            assert known or pipeline.waiting.get(message_id) in behind, f"{message_id} in {replay(run)}"
    assert 0 < 0.5 * waiting < same


def test_the_log_is_that_of_the_core(worlds):
    for run, core, pipeline in worlds:
        assert pipeline.log == core.log, replay(run)


def test_the_log_agrees_with_the_log_of_every_participant(worlds):
    compared = 0
    for run, _, pipeline in worlds:
        place = {message_id: number for number, message_id in enumerate(pipeline.log)}
        everybody = [*run.participants.values(), *run.departed.values()]
        for participant in everybody:
            log = [message_id for message_id in log_of(participant) if message_id in place]
            compared += len(log)
            assert log == sorted(log, key=place.__getitem__), f"{participant.name} in {replay(run)}"
    assert compared


def test_nobody_spoke_before_what_he_knew(worlds):
    """Whatever a sender had sent or been delivered comes before what he said then."""
    for run, _, pipeline in worlds:
        place = {message_id: number for number, message_id in enumerate(pipeline.log)}
        firsts = {}
        for sent in run.history.sends:
            places = [place[sds_id] for sds_id in sent.sds_ids if sds_id in place]
            if places:
                firsts[sent.number] = min(places)
        for number, first in firsts.items():
            known = run.history.sends[number].knew
            late = [other for other, at in firsts.items() if known >> other & 1 and at > first]
            assert not late, f"{late} after {number} in {replay(run)}"


def test_what_a_complete_store_has_is_all_that_was_ever_sent(worlds):
    complete = 0
    for run, _, pipeline in worlds:
        if Trouble.STORE_GAPS in run.plan.troubles:
            continue
        complete += 1
        sends = run.history.sends
        delivered = Counter((send.sender, send.payload_id) for send in sends if send.received_ms)
        assert delivered.total() > len(sends) // 2
        # A participant that left may have been heard by the store alone.
        sent = Counter((send.sender, send.payload_id) for send in sends)
        assert delivered <= pipeline.delivered, replay(run)
        # The Logos wire cannot tell that a message is ephemeral: it is cited, and only stored if somebody repaired it.
        assert (pipeline.delivered - sent).total() <= len(run.history.ephemeral & set(pipeline.log)), replay(run)
        assert pipeline.missing <= run.history.ephemeral, replay(run)
    assert complete


def test_who_acknowledges_by_the_filters_of_the_worlds_has_the_message(spark, archived):
    """The filters are those that participants sent. Spark finds in them what one process finds, and it is true."""
    runs, _, path = archived
    archive = stages.deduplicated(open_source(spark, f"sqlite:{path}"), unique=True).persist()
    found = stages.bloom_evidence(archive).drop("acknowledged_at").persist()
    heard = pa.Table.from_batches(filter_mapper()(iter(archive.drop("timestamp").toArrow().to_batches())))
    order = ("channel_id", "lamport", "message_id", "timestamp_ns", "message_hash")
    places = pc.sort_indices(heard, [(name, "ascending", "at_start") for name in order])
    alone = pa.Table.from_batches(evidence_mapper(SdsConfig())(iter(heard.take(places).to_batches(1_000))))
    assert Counter(map(tuple, found.collect())) == Counter(tuple(row.values()) for row in alone.to_pylist())

    unique = stages.sds_messages(stages.decoded(archive))
    told = stages.acknowledgements(unique, found).collect()
    by_citations = stages.acknowledgements(unique).count()
    assert len(told) > 1.1 * by_citations > 0
    people = {run.channel_id: {**run.departed, **run.participants} for run in runs}
    wrong = Counter()
    for row in told:
        rows = people[row.channel_id][row.acknowledged_by].kept.rows
        wrong[row.how] += rows.keys().isdisjoint({("history", row.message_id), ("parked", row.message_id)})
    # A filter alone may be wrong about a message; with a descendant that its sender cites it is not.
    assert wrong["cited"] == wrong["descendant"] == 0
    assert wrong["bloom"] <= 0.01 * sum(row.how == "bloom" for row in told)
    archive.unpersist()
    found.unpersist()


@pytest.mark.parametrize("profile", list(Profile), ids=[profile.value for profile in Profile])
def test_the_worlds_have_what_they_are_about(worlds, profile):
    deeds, parity, missing = Counter(), 0, 0
    for run, core, _ in worlds:
        if run.plan.profile is profile:
            deeds.update(run.history.happened)
            parity += sum(any(sent.sds_ids.values()) for sent in run.history.sends)
            missing += len(core.missing)
    assert min(deeds[name] for name in ("Crash", "Split", "Leave", "Join")) > 0
    assert parity
    assert missing
