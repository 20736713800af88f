"""The balance of a run: eight classes of rows, the four terms they make, and both wherever a run tells them."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from dataclasses import asdict, fields, replace

from fairway.pipeline.run.summary import Balance, balance_from, balance_json

BALANCE = Balance(
    rows_in=1_159,
    duplicates=1_000,
    quarantined=2,
    retransmissions=4,
    other_shards=32,
    sync=8,
    delivered=16,
    incomplete=97,
)


def test_the_four_terms_are_made_of_the_classes_and_add_up_to_the_rows():
    assert BALANCE.adds_up
    assert BALANCE.formula == {"in": 1_159, "delivered": 24, "parked": 97, "quarantined": 2, "duplicates": 1_036}


@pytest.mark.parametrize("name", [field.name for field in fields(Balance)])
def test_a_row_too_many_in_any_class_shows_in_the_terms_too(name):
    balance = replace(BALANCE, **{name: asdict(BALANCE)[name] + 1})
    rows_in, *terms = balance.formula.values()
    assert not balance.adds_up
    assert sum(terms) == balance.accounted_for != rows_in


def test_programs_get_the_classes_the_terms_and_the_verdict():
    assert balance_json(BALANCE) == asdict(BALANCE) | {"formula": BALANCE.formula, "adds_up": True}


def test_a_manifest_is_read_back_with_the_terms_and_without_them():
    assert balance_from(balance_json(BALANCE)) == BALANCE
    assert balance_from(asdict(BALANCE) | {"adds_up": True}) == BALANCE


def test_the_line_for_people_has_classes_and_terms():
    assert str(BALANCE) == (
        "1,159 rows in = 1,000 duplicates + 2 quarantined + 4 retransmissions + 32 other_shards + 8 sync + 16 delivered"
        " + 97 incomplete; "
        "in short = 24 delivered + 97 parked + 2 quarantined + 1,036 duplicates"
    )
    assert str(replace(BALANCE, rows_in=5)).startswith("5 rows in is not 1,000 duplicates")
    assert "; in short is not 24 delivered" in str(replace(BALANCE, rows_in=5))
