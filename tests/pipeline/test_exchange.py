"""What is cut, and gathered again, is the same rows."""

from __future__ import annotations

import gc
import os
from collections import defaultdict

import pytest

pytest.importorskip("pyspark")

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.pipeline.bucket_keys import MAX_BUCKETS, BucketKeys
from fairway.pipeline.codes import NOTHING, codes_of, codes_of_pairs, dense, ranked
from fairway.pipeline.exchange import (
    Cutter,
    cut,
    filtered,
    gathered,
    in_tasks,
    note,
    pieces,
    taken,
)

SCHEMA = pa.schema(
    [("number", pa.int64()), ("text", pa.string()), ("some", pa.list_(pa.struct([("inner", pa.binary())])))]
)
KEYS = BucketKeys(bytes(32))

texts = st.none() | st.text(max_size=12) | st.text("x", min_size=250, max_size=260)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "number": st.integers(-(2**63), 2**63 - 1),
            "text": texts,
            "some": st.none()
            | st.lists(st.fixed_dictionaries({"inner": st.none() | st.binary(max_size=9)}), max_size=3),
        }
    ),
    max_size=40,
)


def table_of(given, chunks=1):
    """Return rows as a table of some chunks."""
    table = pa.Table.from_pylist(given, SCHEMA)
    size = -(-len(given) // chunks) or 1
    return pa.concat_tables([table.slice(start, size) for start in range(0, len(given), size)] or [table])


def by_bucket(batches):
    """Return blobs as Spark's shuffle brings them: those of a bucket together, in one batch."""
    found = defaultdict(list)
    for batch in batches:
        found[batch.column("bucket")[0].as_py()].append(batch)
    return {bucket: [pa.concat_batches(parts)] for bucket, parts in found.items()}


def unordered(rows):
    return sorted(rows, key=lambda row: repr(sorted(row.items())))


@examples(0.5)
@given(rows, st.integers(1, 20), st.integers(1, 4), st.sampled_from([1, 300, 1 << 20]), st.sampled_from([1, 1 << 20]))
def test_what_is_cut_and_gathered_is_the_same_rows(rows, count, chunks, flush_bytes, spill_bytes):
    table = table_of(rows, chunks)
    cutter = Cutter("rows", count, flush_bytes=flush_bytes)
    blobs = []
    for chunk in table.to_batches():
        part = pa.Table.from_batches([chunk])
        blobs += cutter.add(part, KEYS.by_columns([part["text"]], count))
    blobs += cutter.close()
    found = {
        bucket: gathered(batches, spill_bytes=spill_bytes) for bucket, batches in by_bucket([*blobs, note(a=1)]).items()
    }
    expected = defaultdict(list)
    for row, bucket in zip(rows, KEYS.by_columns([table["text"]], count).tolist(), strict=True):
        expected[bucket].append(row)
    assert {number: unordered(one.tables["rows"].to_pylist()) for number, one in found.items() if one.tables} == {
        number: unordered(own) for number, own in expected.items()
    }
    assert all(one.number == number for number, one in found.items())
    for one in found.values():
        one.table("rows", SCHEMA).validate(full=True)
    assert sum(len(one.notes) for one in found.values()) == 1


@examples(0.3)
@given(rows, st.integers(1, 5), st.sampled_from([1, 1 << 20]), st.randoms(use_true_random=False))
def test_one_cutter_cuts_a_table_by_bucket_and_kind(rows, count, flush_bytes, rng):
    table = table_of(rows, 1)
    kinds = [rng.randrange(2) for _ in rows]
    buckets = [rng.randrange(count) for _ in rows]
    cutter = Cutter("even", count, "odd", flush_bytes=flush_bytes)
    blobs = [*cutter.add(table, np.array(buckets, np.uint16), np.array(kinds, np.uint16)), *cutter.close()]
    found = {bucket: gathered(batches).tables for bucket, batches in by_bucket(blobs).items()}
    expected = defaultdict(lambda: defaultdict(list))
    for row, bucket, kind in zip(rows, buckets, kinds, strict=True):
        expected[bucket]["odd" if kind else "even"].append(row)
    assert {
        bucket: {kind: unordered(own.to_pylist()) for kind, own in tables.items()} for bucket, tables in found.items()
    } == {bucket: {kind: unordered(own) for kind, own in kinds.items()} for bucket, kinds in expected.items()}


def test_a_cutter_counts_buckets_and_kinds_in_16_bits():
    assert list(Cutter("a", MAX_BUCKETS // 2, "b").close()) == []
    with pytest.raises(ValueError, match="more than 65536"):
        Cutter("a", MAX_BUCKETS // 2 + 1, "b")


def test_blobs_are_smaller_than_the_rows_in_them():
    table = pa.table({"topic": ["/fairway/1/team/proto"] * 10_000})
    blobs = list(cut(table, np.zeros(10_000, np.uint16), 1, "rows"))
    assert sum(batch.column("blob")[0].as_buffer().size for batch in blobs) < table.nbytes / 4
    assert gathered(blobs).tables["rows"] == table


def test_contents_that_do_not_get_smaller_are_not_compressed():
    def blobs_of(contents):
        table = pa.table({"channel_id": ["team"] * len(contents), "content": pa.array(contents, pa.binary())})
        batches = list(cut(table, np.zeros(len(contents), np.uint16), 1, "rows"))
        assert gathered(batches).tables["rows"].to_pylist() == table.to_pylist()
        return sum(len(blob.as_py()) for batch in batches for blob in batch["blob"]), table.nbytes

    size, plain = blobs_of([os.urandom(10) * 100 for _ in range(50)])
    assert size < plain / 2
    size, plain = blobs_of([None, *(os.urandom(1_000) for _ in range(50)), b""])
    assert plain <= size < plain + 2_000


@pytest.mark.parametrize("content", [os.urandom(1 << 20), bytes(1 << 20)], ids=["random", "compressed to nothing"])
def test_a_bucket_that_is_far_larger_than_others_is_in_a_file(tmp_path, monkeypatch, content):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}")

    def blobs():
        for number in range(64):
            table = pa.table({"number": [number], "content": [content]})
            yield from cut(table, np.zeros(1, np.uint16), 1, "rows")

    before = pa.total_allocated_bytes()
    bucket = gathered(blobs(), spill_bytes=8 << 20)
    assert pa.total_allocated_bytes() - before < 16 << 20
    assert bucket.tables["rows"].num_rows == 64
    assert sorted(bucket.tables["rows"]["number"].to_pylist()) == list(range(64))
    assert set(bucket.tables["rows"]["content"].to_pylist()) == {content}
    assert not list(tmp_path.iterdir()), "the file has no name, so that nothing is left of a task that is killed"


def test_a_large_part_of_a_bucket_is_several_blobs_and_no_row_is_cut(monkeypatch):
    monkeypatch.setattr("fairway.pipeline.exchange.MAX_BLOB_BYTES", 1_000)
    table = pa.table({"content": [bytes(400)] * 5 + [bytes(5_000)] + [bytes(10)] * 20})
    blobs = list(cut(table, np.zeros(26, np.uint16), 1, "rows"))
    assert len(blobs) > 3
    assert gathered(blobs).tables["rows"].combine_chunks() == table
    assert [piece.num_rows for piece in pieces(table, 1 << 20)] == [26]
    assert max(piece.num_rows for piece in pieces(table, 1)) == 1


@examples(0.5)
@given(st.lists(st.tuples(texts, texts), max_size=30), st.integers(1, 1_000), st.integers(1, 3))
def test_equal_keys_have_one_bucket_wherever_they_stand(pairs, count, chunks):
    left, right = (pa.array([pair[side] for pair in pairs], pa.string()) for side in (0, 1))
    buckets = KEYS.by_columns([left, right], count)
    assert all(bucket < count for bucket in buckets.tolist())
    size = max(1, -(-len(pairs) // chunks))
    parts = [
        KEYS.by_columns(
            [pa.chunked_array([left.slice(start, size)]), right.slice(start, size).cast(pa.large_binary())], count
        )
        for start in range(0, len(pairs), size)
    ]
    assert np.concatenate([np.zeros(0, np.uint16), *parts]).tolist() == buckets.tolist()
    by_value = dict(zip(pairs, buckets.tolist(), strict=True))
    assert [by_value[pair] for pair in pairs] == buckets.tolist()


@pytest.mark.parametrize("length", [1, 7, 8, 32, 64, 256, 257, 1_000])
def test_other_keys_spread_the_rows_otherwise_and_evenly(length):
    ids = pa.array([number.to_bytes(2).rjust(length, b"-")[-length:] for number in range(20_000)], pa.binary())
    distinct = min(20_000, 256**length)
    for by in (lambda keys: keys.by_columns([ids], 16), lambda keys: keys.by_columns([ids, ids], 16)):
        one, other = by(BucketKeys.drawn()), by(BucketKeys.drawn())
        if distinct == 20_000:
            assert np.bincount(one, minlength=16).min() > 20_000 / 32
            assert np.bincount(one, minlength=16).max() < 20_000 / 8
        assert np.mean(one != other) > 0.5


def test_ids_that_differ_in_the_same_bits_do_not_share_a_bucket():
    """A hash whose multipliers are all odd would not see that two words both changed their highest bit."""
    flips = [sum(1 << (64 * word + 63) for word in range(4) if number >> word & 1) for number in range(16)]
    ids = pa.array([flip.to_bytes(32, "little") for flip in flips], pa.binary())
    assert len(set(BucketKeys.drawn().by_columns([ids], MAX_BUCKETS).tolist())) > 12


def test_more_buckets_than_a_number_has_bits_for_are_refused():
    with pytest.raises(ValueError, match="65536"):
        KEYS.by_columns([pa.array([b"x"])], MAX_BUCKETS + 1)


@examples(0.5)
@given(st.lists(st.tuples(texts, st.none() | st.integers(0, 5)), max_size=30), st.integers(1, 3))
def test_codes_are_equal_exactly_where_all_columns_are(pairs, chunks):
    size = max(1, -(-len(pairs) // chunks))
    words = [pa.array([word for word, _ in pairs[start : start + size]], pa.string()) for start in range(0, 30, size)]
    codes = codes_of(pa.chunked_array(words), pa.array([number for _, number in pairs], pa.int64()))
    by_value = dict(zip(pairs, codes.tolist(), strict=True))
    assert [by_value[pair] for pair in pairs] == codes.tolist()
    assert len(set(by_value.values())) == len(by_value)
    packed, count = dense(codes)
    assert count == len(by_value)
    assert list(dict.fromkeys(packed.tolist())) == list(range(count))


@examples(1)
@given(rows, st.integers(1, 5), st.booleans(), st.data())
def test_rows_that_are_taken_are_those_asked_for_in_their_order(given_rows, chunks, are_large, data):
    if are_large:
        given_rows = [row | {"text": row["text"] and row["text"] * 3_000} for row in given_rows]
    table = table_of(given_rows, chunks)
    places = st.lists(st.integers(0, len(given_rows) - 1), max_size=20) if given_rows else st.just([])
    wanted = data.draw(places)
    found = taken(table, np.array(wanted, np.int64))
    assert found.schema == table.schema
    assert found.to_pylist() == [given_rows[place] for place in wanted]


@examples(0.5)
@given(rows, st.data())
def test_what_is_filtered_is_copied_only_if_something_goes(given_rows, data):
    table = table_of(given_rows, 2)
    count = len(given_rows)
    chosen = data.draw(st.lists(st.sampled_from([True, True, True, False, None]), min_size=count, max_size=count))
    found = filtered(table, pa.array(chosen, pa.bool_()))
    assert found.to_pylist() == [row for row, is_chosen in zip(given_rows, chosen, strict=True) if is_chosen]
    assert (found is table) == all(chosen)
    assert filtered(table, np.ones(count, np.bool_)) is table


@examples(0.5)
@given(st.lists(st.lists(st.none() | st.text(max_size=3), max_size=8), min_size=1, max_size=4), st.booleans())
def test_ranks_sort_as_the_values_of_all_columns_do(columns, is_encoded):
    chunked = [pa.chunked_array([column[:3], column[3:]], pa.string()) for column in columns]
    ranks, values = ranked(*(column.dictionary_encode() if is_encoded else column for column in chunked))
    values = values.to_pylist()
    assert values == sorted({one for column in columns for one in column} - {None}, key=str.encode)
    assert [[None if rank == NOTHING else values[rank] for rank in own.tolist()] for own in ranks] == columns


@examples(1)
@given(
    st.lists(st.tuples(st.none() | st.sampled_from("ab"), st.none() | st.text("xyz", max_size=2)), max_size=40),
    st.integers(1, 4),
)
def test_codes_of_pairs_are_equal_exactly_where_both_are_and_have_no_holes(pairs, chunks):
    few, many = ([pair[side] for pair in pairs] for side in (0, 1))
    size = -(-len(pairs) // chunks) or 1
    parts = [pa.array(many[start : start + size], pa.string()) for start in range(0, len(pairs), size)]
    codes, count = codes_of_pairs(pa.array(few, pa.string()), pa.chunked_array(parts, pa.string()))
    by_value = dict(zip(pairs, codes.tolist(), strict=True))
    assert [by_value[pair] for pair in pairs] == codes.tolist()
    assert sorted(by_value.values()) == list(range(count))


def test_codes_of_many_columns_do_not_run_over():
    rng = np.random.default_rng(1)
    columns = [pa.array(rng.permutation(5_000)) for _ in range(8)]
    assert dense(codes_of(*columns))[1] == 5_000
    with pytest.raises(ValueError, match="one column"):
        codes_of()


@pytest.mark.spark
def test_a_task_has_one_core_for_arrow_and_leaves_its_code_out_of_the_search_for_garbage(spark):
    def counted(_):
        yield pa.RecordBatch.from_pydict({"cores": [pa.cpu_count()], "objects": [gc.get_freeze_count()]})

    (row,) = in_tasks(spark.range(0, 1, 1, 1), counted, "cores bigint, objects bigint").collect()
    assert row.cores == 1
    assert row.objects > 1_000
