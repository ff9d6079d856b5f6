"""Planners' answers for people: one as a tree, several as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.errors import AnabranchError
from anabranch.planning.answer import Answer, RegionChoice, kind_of, routing_key
from anabranch.planning.planners.planner import Problem
from anabranch.planning.profile import Profile

NOTHING = 1e-9
"""A gap below this is rounding."""


@dataclass(frozen=True)
class Compared:
    """A planner, its answer or why it has none, and how long it took."""

    planner: str
    answer: Answer | AnabranchError
    solve_ms: float


def as_tree(title: str, problem: Problem, planner: str, answer: Answer) -> str:
    """A plan and what it promises."""
    per = f" tuples per {problem.profile.unit}" if problem.profile.unit else ""
    per += " at the sinks" if answer.at_sinks else ""
    lines = [
        f"{title}, planned by {planner}",
        f"{answer.throughput:.6g}{per}, {answer.utilization:.2f} of {problem.machine.cores} cores"
        f" at work, {counted(answer.threads, 'thread')}",
    ]
    if answer.gap is not None:
        below = f" than {answer.bound:.6g}; this is {answer.gap:.1%} below"
        lines.append("no plan can promise more" + (below if answer.gap > NOTHING else ""))
    for number, region in enumerate(answer.regions):
        last = number == len(answer.regions) - 1
        lines.append(("└─ " if last else "├─ ") + region_line(problem.profile, region))
        ends = ["├─ "] * (len(region.pipelines) - 1) + ["└─ "]
        for end, pipeline in zip(ends, region.pipelines, strict=True):
            lines.append(("   " if last else "│  ") + end + " · ".join(pipeline))
    return "\n".join(lines)


def region_line(profile: Profile, region: RegionChoice) -> str:
    """One region: what it is, how often it runs, and where."""
    members = [profile.by_name[name] for name in region.operators]
    key = f" by {', '.join(routing_key(members))}" if routing_key(members) else ""
    line = f"{kind_of(members).value}{key}: {counted(region.replicas, 'replica')}"
    sockets = sorted(set(region.placement))
    places = [f"{region.placement.count(one)} on socket {one}" for one in sockets]
    return line + (f" ({', '.join(places)})" if places else "")


def counted(number: int, word: str) -> str:
    """A number and what it counts.

    Example:
        >>> counted(1, "thread"), counted(2, "thread")
        ('1 thread', '2 threads')
    """
    return f"{number} {word}" + ("s" if number != 1 else "")


def as_table(title: str, problem: Problem, compared: Sequence[Compared]) -> str:
    """Planners side by side, in tuples that the application takes in; speedup over the first."""
    width = max(len(each.planner) for each in compared)
    lines = [
        title,
        f"{'planner':{width}}  {'throughput':>12}  {'speedup':>7}  {'cores':>6}  {'threads':>7}"
        f"  {'gap':>6}  {'ms':>8}",
    ]
    first = next((e.answer for e in compared if isinstance(e.answer, Answer)), None)
    for each in compared:
        if isinstance(each.answer, AnabranchError):
            lines.append(f"{each.planner:{width}}  {each.answer.got}: {each.answer.remedy}")
            continue
        answer = each.answer
        taken = answer.taken_in(problem.profile)
        speedup = taken / first.taken_in(problem.profile) if first else 1.0
        gap = f"{answer.gap:.1%}" if answer.gap is not None else "—"
        lines.append(
            f"{each.planner:{width}}  {taken:12.6g}  {speedup:6.2f}×"
            f"  {answer.utilization:6.2f}  {answer.threads:7}  {gap:>6}  {each.solve_ms:8.1f}"
        )
    return "\n".join(lines)
