"""Flows for tests of policies: each operator a region of its own, which idles."""

from itertools import pairwise

from anabranch.engines.simulator.flows import flow_of
from anabranch.flow import Flow
from anabranch.graph import StateKind
from anabranch.planning.profile import OperatorProfile, Profile, StreamProfile


def line_of_regions(*regions: str) -> Flow:
    """Regions one behind the other; `a+b` is a region of two steps, `a!` one without replicas.

    Keys that differ keep regions apart. The source is called `<first step>.input`, the sink
    `<last step>.output`.
    """
    steps = [_operator(step, region) for region in regions for step in region.split("+")]
    names = [step.name for step in steps]
    streams = [StreamProfile(a, b, 1.0) for a, b in pairwise(names)]
    return flow_of(Profile(tuple(steps), tuple(streams)))


def graph_of_regions(**followers: str) -> Flow:
    """Regions with streams to others, which are named with spaces between; a step each."""
    names = list(dict.fromkeys([*followers, *(n for f in followers.values() for n in f.split())]))
    streams = [StreamProfile(a, b, 1.0) for a, f in followers.items() for b in f.split()]
    return flow_of(Profile(tuple(_operator(name, name) for name in names), tuple(streams)))


def _operator(step: str, region: str) -> OperatorProfile:
    name = step.removesuffix("!")
    if step.endswith("!"):
        return OperatorProfile(name, 1.0, state=StateKind.STATEFUL)
    return OperatorProfile(name, 1.0, state=StateKind.PARTITIONED, key=(f"key of {region}",))
