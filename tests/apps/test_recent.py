from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anabranch.apps.kit.recent import Recent
from anabranch.columns.grouped_rows import Runs

GROUPS = 3
ANY = st.integers(-(2**63), 2**63 - 1)


@given(
    st.lists(st.tuples(st.integers(0, GROUPS - 1), ANY), max_size=12),
    st.integers(0, 4).flatmap(
        lambda ages: st.lists(
            st.lists(ANY, min_size=GROUPS, max_size=GROUPS), min_size=ages, max_size=ages
        )
    ),
)
def test_rows_see_what_their_own_group_had_before(rows, past):
    ages = len(past)
    codes = np.array([code for code, _ in rows], np.int64)
    values = np.array([value for _, value in rows], np.int64)
    kept = np.array(past, np.int64).reshape(ages, GROUPS)
    recent = Recent(Runs(codes, GROUPS), values, kept)
    lists = [[row[group] for row in past] for group in range(GROUPS)]
    for row, (group, value) in enumerate(rows):
        lists[group].append(value)
        assert recent.line[recent.places[row]] == value
        for back in range(1, ages + 1):
            assert recent.before(back)[row] == lists[group][-1 - back]
        total = sum(lists[group][-1 - ages :])
        assert int(recent.sums()[row]) == (total + 2**63) % 2**64 - 2**63
    ends = [each[len(each) - ages :] for each in lists]
    assert recent.past().tolist() == [[each[age] for each in ends] for age in range(ages)]
