"""The membership tree, the window of roots, and groups in files, which may be damaged or change under a reader."""

from __future__ import annotations

import json
from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.errors import (
    ConfigurationError,
    RlnError,
    RlnErrorKind,
    StorageError,
    StoreCorruptError,
    StoreLockedError,
)
from fairway.rln.field import FIELD_ORDER, ZERO, element, poseidon
from fairway.rln.identity import rate_commitment
from fairway.rln.membership_file import MembershipFile
from fairway.rln.tree import TREE_DEPTH, TREE_PLACES, MembershipTree, empty_root
from fairway.storage.store_lock import StoreLock

pytestmark = pytest.mark.usefixtures("compiled")


def root_of(path, leaf) -> bytes:
    """Walk a path up by its definition."""
    pairs = zip(path.siblings, path.bits, strict=True)
    return reduce(lambda node, step: poseidon(*((step[0], node) if step[1] else (node, step[0]))), pairs, leaf)


def test_a_tree_without_members_has_the_published_root():
    number = 15019797232609675441998260052101280400536945603062888308240081994073687793470
    assert MembershipTree().root == empty_root(TREE_DEPTH) == element(number)


@given(
    st.lists(st.integers(1, FIELD_ORDER - 1).map(element), max_size=12),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, FIELD_ORDER - 1).map(element)), max_size=4),
)
@settings(max_examples=20)
def test_every_path_leads_from_its_leaf_to_the_root(leaves, changes):
    tree = MembershipTree(leaves)
    for index, leaf in changes:
        tree.put(index, leaf)
    for index in {*range(len(leaves)), *(index for index, _ in changes), TREE_PLACES - 1}:
        path = tree.path(index)
        assert path.root == tree.root == root_of(path, tree.leaf(index))


def test_a_removed_member_leaves_the_tree_as_if_it_had_never_been():
    tree = MembershipTree([element(1)])
    tree.put(5, element(2))
    tree.put(5, ZERO)
    assert tree.root == MembershipTree([element(1)]).root


def test_a_group_in_a_file_is_the_same_when_it_is_read_again(group, tmp_path, identities):
    again = MembershipFile(tmp_path / "group.json")
    assert (again.root, len(again), again.members) == (group.root, 5, group.members)
    leaves = [rate_commitment(identity.commitment, 20) for identity in identities]
    assert again.root == MembershipTree(leaves).root


def test_a_reader_learns_of_new_and_removed_members_and_still_accepts_the_root_before(group, tmp_path, identities):
    reader = MembershipFile(tmp_path / "group.json")
    before = reader.root
    assert not reader.refresh()
    writer = MembershipFile(tmp_path / "group.json")
    assert writer.register(element(77), 3) == 5
    writer.remove(0)
    assert reader.refresh()
    assert reader.root == writer.root
    assert before in reader.roots
    assert writer.root in reader.roots
    with pytest.raises(RlnError) as told:
        reader.member(identities[0])
    assert told.value.kind is RlnErrorKind.NOT_READY


def test_a_member_has_the_place_at_which_it_was_registered_until_it_is_removed(group, identities):
    assert [group.place(identity.commitment) for identity in identities] == [0, 1, 2, 3, 4]
    assert group.place(element(77)) is None
    group.remove(1)
    group.register(element(77), 3)
    assert [group.place(one) for one in (identities[1].commitment, identities[2].commitment, element(77))] == [
        None,
        2,
        5,
    ]


def test_after_a_restart_the_roots_before_the_latest_members_are_accepted(group, tmp_path):
    older = group.root
    group.register(element(77), 3)
    assert older in MembershipFile(tmp_path / "group.json").roots


def test_an_existing_file_is_not_replaced(group, tmp_path):
    with pytest.raises(ConfigurationError, match="exists"):
        MembershipFile.create(tmp_path / "group.json")
    assert len(MembershipFile(tmp_path / "group.json")) == 5


def test_a_file_that_another_changes_at_this_time_is_refused(group, tmp_path):
    lock = StoreLock(tmp_path / "group.json")
    try:
        with pytest.raises(StoreLockedError):
            group.register(element(77), 3)
    finally:
        lock.release()
    assert group.register(element(77), 3) == 5


def test_a_missing_file_raises_an_error(tmp_path):
    with pytest.raises(StorageError, match=r"no group .*none\.json: .*--create"):
        MembershipFile(tmp_path / "none.json")


MEMBER = {"commitment": "01" + "00" * 31, "limit": 20}


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"},
        {"version": 2},
        {"epoch_ms": 0},
        {"identifier": ""},
        {"identifier": "x" * 33},
        {"surprise": 1},
        {"members": [MEMBER | {"limit": 0}]},
        {"members": [MEMBER | {"limit": FIELD_ORDER}]},
        {"members": [MEMBER | {"commitment": "ff" * 32}]},
        {"members": [MEMBER | {"commitment": "0A" + "00" * 31}]},
        {"members": [MEMBER | {"commitment": "xx"}]},
        {"members": [{"limit": 1}]},
    ],
    ids=str,
)
def test_a_damaged_group_is_refused_also_when_it_is_read_again(group, tmp_path, change):
    path = tmp_path / "group.json"
    root = group.root
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    for use in (lambda: MembershipFile(path), group.refresh):
        with pytest.raises(StoreCorruptError, match=r"group\.json"):
            use()
    assert group.root == root


def test_places_that_vanish_are_refused(group, tmp_path):
    path = tmp_path / "group.json"
    kept = json.loads(path.read_text())
    path.write_text(json.dumps(kept | {"members": kept["members"][:2]}))
    with pytest.raises(StoreCorruptError, match="fewer places"):
        group.refresh()
