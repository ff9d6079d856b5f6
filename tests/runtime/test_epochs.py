from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.epochs import Epochs


def test_a_switch_is_wished_for_until_it_begins():
    epochs = Epochs("a")
    wishes = [epochs.asked]
    epochs.request("b")
    wishes.append(epochs.asked)
    epochs.begin()
    assert [*wishes, epochs.asked] == [False, True, False]


def test_a_newer_request_supersedes_a_pending_one():
    epochs = Epochs("a")
    epochs.request("b")
    epochs.request("c")
    assert epochs.plan(epochs.begin()) == "c"


def test_a_request_after_the_switch_has_begun_waits_its_turn():
    epochs = Epochs("a")
    epochs.request("b")
    first = epochs.begin()
    epochs.request("c")
    assert (epochs.plan(first), epochs.asked) == ("b", True)


def test_an_epoch_that_nobody_asked_for_keeps_the_plan():
    epochs = Epochs("a")
    assert epochs.plan(epochs.begin()) == "a"


def test_a_restored_run_goes_on_with_its_number():
    epochs = Epochs("a", first=7)
    assert (epochs.plan(7), epochs.begin()) == ("a", 8)


def test_plans_of_epochs_that_are_over_are_forgotten():
    epochs = Epochs("a")
    epochs.begin()
    epochs.forget(before=1)
    with pytest.raises(KeyError):
        epochs.plan(0)


def test_the_plan_of_an_epoch_that_goes_on_is_kept():
    epochs = Epochs("a")
    epochs.begin()
    epochs.forget(before=1)
    assert epochs.plan(1) == "a"


@given(st.lists(st.one_of(st.integers(), st.none()), max_size=20))
def test_every_epoch_runs_under_the_wish_last_made_before_it(moves):
    """A number is a request, None begins an epoch."""
    epochs, current, asked = Epochs(0), 0, None
    for move in moves:
        if move is None:
            current, asked = current if asked is None else asked, None
            assert epochs.plan(epochs.begin()) == current
        else:
            epochs.request(move)
            asked = move
    assert epochs.newest == moves.count(None)
