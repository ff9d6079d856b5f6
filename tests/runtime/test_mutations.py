"""Each of STRETCH's properties notices when the runtime is broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from anabranch.runtime.messages import Delivery
from anabranch.runtime.unit import Unit
from tests.law.test_mutations import (
    do_not_merge,
    forget_a_replica,
    keep_what_was_given_away,
    straddle_a_timestamp,
    wait_for_no_silent_link,
    wait_for_nobodys_state,
)
from tests.runtime.recorded import record, violations
from tests.runtime.switching import any_plan, switching_flow

SEEDS = range(12)

Patch = pytest.MonkeyPatch


def give_a_bucket_to_a_second_owner(patch: Patch) -> None:
    """The second replica uses the first bucket, too, whoever owns it."""
    adopt = Unit.adopt

    def generous(self: Unit, layout: Any) -> bool:
        other_steps = adopt(self, layout)
        if self.id.replica == 1:
            self.channel.own(tuple(sorted({0, *self.channel.buckets})))
        return other_steps

    patch.setattr(Unit, "adopt", generous)


def lose_tuples_of_a_replica(patch: Patch) -> None:
    """After a change of plan the second replica gets frontiers alone."""
    receive = Unit.receive

    def forgetful(self: Unit, message: Any) -> None:
        if self.id.replica == 1 and message.epoch > 0 and isinstance(message, Delivery):
            message = message._replace(jumbo=None)
        receive(self, message)

    patch.setattr(Unit, "receive", forgetful)


MUTATIONS: dict[Callable[[Patch], None], str] = {
    lose_tuples_of_a_replica: "P1",
    give_a_bucket_to_a_second_owner: "P2",
    keep_what_was_given_away: "P2",
    wait_for_no_silent_link: "P3",
    do_not_merge: "P1",
    wait_for_nobodys_state: "P4",
    forget_a_replica: "P5",
    straddle_a_timestamp: "P6",
}
"""Each mutation, and the property that must notice it."""


@pytest.mark.parametrize("mutate", MUTATIONS)
def test_the_property_notices(mutate: Callable[[Patch], None]):
    found: list[str] = []
    for seed in SEEDS:  # not every order of events shows every mutation
        rng = Random(seed)
        flow = switching_flow(rows=40, seed=seed)
        plans = [any_plan(flow, rng) for _ in range(7)]
        with pytest.MonkeyPatch.context() as patch:
            mutate(patch)
            stories = record(patch, flow, plans[0], plans[1:], seed, may_fail=True)
        found += violations(stories)
        if any(each.startswith(MUTATIONS[mutate]) for each in found):
            return
    pytest.fail(f"unnoticed; all that was found: {found}")
