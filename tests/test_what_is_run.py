"""What is no flow cannot be run, and that is said at once."""

from __future__ import annotations

import pytest

import anabranch as ab
from anabranch.apps import word_count
from anabranch.errors import BuildError


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([1], r"expected a Flow, got list \[1\]; build one with ab.Flow"),
        (None, r"expected a Flow, got NoneType None; build"),
        (word_count.build, "got function .*; call the function that builds it"),
        (ab.Flow("f").source("s", ab.memory([{"a": 1}])), "got Stream .*that the stream belongs"),
    ],
)
@pytest.mark.parametrize("use", [ab.run, ab.start, ab.plan])
def test_what_is_no_flow_is_refused_by_name(use, given, told):
    with pytest.raises(BuildError, match=told):
        use(given)
