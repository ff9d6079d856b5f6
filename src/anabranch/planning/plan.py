"""Plans: how a flow runs. A plan is a value: it can be printed, stored, checked and compared.

For each region its pipelines, replicas, bucket map and placement; for each source its replicas and
throttle. The regions themselves are the flow's; a plan cannot change them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from types import EllipsisType
from typing import TypeVar

from anabranch.errors import PlanError, Subject, nearest
from anabranch.events import Shape
from anabranch.flow import Flow
from anabranch.io.reader import PART_SHIFT
from anabranch.planning.bucket_map import BucketMap, balanced, moved, rebalanced
from anabranch.planning.regions import Region, RegionKind, regions, shape_of
from anabranch.planning.typed_json import fitted

DEFAULT_BATCH_ROWS = 65_536
RANGE_ROWS = 1 << 18
MOST_RANGE_ROWS = 1 << PART_SHIFT
"""Positions of two parts of a source are never in one range."""
Named = TypeVar("Named")


@dataclass(frozen=True)
class RegionPlan:
    """How one region runs.

    Attributes:
        region: Name of the region.
        pipelines: Its steps, cut into runs that are fused.
        replicas: How many copies.
        bucket_map: Owner of each bucket; empty where there is no partitioned state.
        placement: Where each replica sits, by name of a place; empty means anywhere.
        workers: The worker process of each pipeline of each replica, numbered from 0, replica by
            replica; empty leaves that to the engine. Only the local engine has such workers.
        range_rows: The replicas of a sink take ranges of so many positions in turn, counted in rows
            of each source; a power of two.
    """

    region: str
    pipelines: tuple[tuple[str, ...], ...]
    replicas: int = 1
    bucket_map: BucketMap = ()
    placement: tuple[str, ...] = ()
    workers: tuple[int, ...] = ()
    range_rows: int = RANGE_ROWS


@dataclass(frozen=True)
class SourcePlan:
    """How one source is read.

    Attributes:
        source: Name of the source.
        replicas: Parallel readers.
        in_flight_limit: Tuples under way at most; None leaves that to the engine.
        batch_rows: Rows of a batch.
        workers: The worker process of each reader, numbered from 0; empty leaves that to the
            engine.
    """

    source: str
    replicas: int = 1
    in_flight_limit: int | None = None
    batch_rows: int = DEFAULT_BATCH_ROWS
    workers: tuple[int, ...] = ()

    @property
    def most_rows(self) -> int:
        """Rows that are read at once: where batches are all that is in flight, both bound them."""
        return min(self.batch_rows, self.in_flight_limit or self.batch_rows)


@dataclass(frozen=True, repr=False)
class Plan:
    """A plan for one flow.

    Example:
        >>> from anabranch.apps import word_count
        >>> plan = Plan.sequential(word_count.build())
        >>> print(plan.with_replicas("count", 2))
        plan for word-count
        ├─ source lines: 1 reader, 65536 rows a batch
        ├─ split: 1 replica
        │  └─ split · count.combine
        ├─ count: 2 replicas, 128 buckets each
        │  └─ count
        └─ out: 1 replica
           └─ out
    """

    flow: str
    fingerprint: str
    regions: tuple[RegionPlan, ...]
    sources: tuple[SourcePlan, ...]
    shape: Shape | None = field(default=None, compare=False)
    """What the flow looks like, to draw the plan; unknown to plans that come from a file."""

    @staticmethod
    def sequential(flow: Flow) -> Plan:
        """Everything once: one replica and one pipeline per region."""
        found = regions(flow)
        plans = tuple(
            RegionPlan(r.name, (r.steps,), 1, balanced(r.buckets, 1) if r.mapped else ())
            for r in found
            if r.kind is not RegionKind.SOURCE
        )
        sources = tuple(SourcePlan(r.name) for r in found if r.kind is RegionKind.SOURCE)
        return Plan(flow.name, flow.fingerprint(), plans, sources, shape_of(flow))

    def region(self, name: str) -> RegionPlan:
        """The plan of one region."""
        return self._named("region", name, {plan.region: plan for plan in self.regions})

    def source(self, name: str) -> SourcePlan:
        """The plan of one source."""
        return self._named("source", name, {plan.source: plan for plan in self.sources})

    def _named(self, what: str, name: str, known: Mapping[str, Named]) -> Named:
        if name not in known:
            expected = f"a {what} among {list(known)}"
            raise PlanError(Subject("plan", self.flow), expected, repr(name), nearest(name, known))
        return known[name]

    def with_replicas(self, region: str, replicas: int) -> Plan:
        """Another number of replicas; buckets move as little as possible."""
        if replicas < 1:
            raise PlanError(
                Subject("region", region), "at least one replica", str(replicas), "give at least 1"
            )
        old = self.region(region)
        bucket_map = rebalanced(old.bucket_map, replicas) if old.bucket_map else ()
        return self._with(
            replace(old, replicas=replicas, bucket_map=bucket_map, placement=(), workers=())
        )

    def with_pipelines(self, region: str, *lengths: int) -> Plan:
        """The region's steps cut into runs of the given lengths."""
        old = self.region(region)
        steps = [s for p in old.pipelines for s in p]
        if sum(lengths) != len(steps) or any(n < 1 for n in lengths):
            raise PlanError(
                Subject("region", region),
                f"lengths that add up to {len(steps)}",
                str(list(lengths)),
                "cut every step into exactly one pipeline",
            )
        starts = [sum(lengths[:i]) for i in range(len(lengths))]
        runs = tuple(tuple(steps[s : s + n]) for s, n in zip(starts, lengths, strict=True))
        return self._with(replace(old, pipelines=runs, workers=()))

    def with_bucket_map(self, region: str, bucket_map: BucketMap) -> Plan:
        """Another owner for some buckets."""
        return self._with(replace(self.region(region), bucket_map=tuple(bucket_map)))

    def with_range_rows(self, sink: str, rows: int) -> Plan:
        """Replicas of a sink that take ranges of at least so many rows in turn.

        Example:
            >>> from anabranch.apps import word_count
            >>> plan = Plan.sequential(word_count.build()).with_range_rows("out", 100_000)
            >>> plan.region("out").range_rows
            131072
        """
        return self._with(replace(self.region(sink), range_rows=1 << max(rows - 1, 0).bit_length()))

    def with_source(
        self,
        source: str,
        *,
        replicas: int | None = None,
        batch_rows: int | None = None,
        in_flight_limit: int | EllipsisType | None = ...,
    ) -> Plan:
        """Other readers, batch size or throttle (None: no limit); what is left out stays."""
        old = self.source(source)
        readers = old.replicas if replicas is None else replicas
        changed = SourcePlan(
            source,
            readers,
            old.in_flight_limit if isinstance(in_flight_limit, EllipsisType) else in_flight_limit,
            old.batch_rows if batch_rows is None else batch_rows,
            old.workers if readers == old.replicas else (),
        )
        return replace(
            self, sources=tuple(changed if s.source == source else s for s in self.sources)
        )

    def with_workers(self, name: str, *workers: int) -> Plan:
        """The units of a region or source on these workers; with one number, all on that one.

        Example:
            >>> from anabranch.apps import word_count
            >>> plan = Plan.sequential(word_count.build()).with_replicas("count", 2)
            >>> plan.with_workers("count", 0, 1).region("count").workers
            (0, 1)
        """
        own = next((plan for plan in self.sources if plan.source == name), None)
        if own is not None:
            given = workers * own.replicas if len(workers) == 1 else workers
            changed = replace(own, workers=given)
            return replace(self, sources=tuple(changed if s is own else s for s in self.sources))
        old = self.region(name)
        units = old.replicas * len(old.pipelines)
        return self._with(replace(old, workers=workers * units if len(workers) == 1 else workers))

    def _with(self, changed: RegionPlan) -> Plan:
        return replace(
            self,
            regions=tuple(changed if r.region == changed.region else r for r in self.regions),
        )

    def validate(self, flow: Flow) -> None:
        """Raise unless this plan can run that flow."""
        if self.fingerprint != flow.fingerprint():
            raise PlanError(
                Subject("flow", flow.name),
                f"a plan for flow {flow.name!r} ({flow.fingerprint()})",
                f"one for {self.flow!r} ({self.fingerprint})",
                "plan again, with the input and settings of this run: other steps, keys or buckets "
                "need another plan",
            )
        found = {r.name: r for r in regions(flow)}
        planned = [r.region for r in self.regions] + [s.source for s in self.sources]
        if sorted(planned) != sorted(found):
            raise PlanError(
                Subject("flow", flow.name),
                f"each of the regions {sorted(found)} once",
                f"{sorted(planned)}",
                "plan every region once",
            )
        for plan in self.regions:
            _validate_region(plan, found[plan.region])
        for source in self.sources:
            _validate_source(source, found[source.source])

    def diff(self, other: Plan) -> list[str]:
        """What changes from this plan to another, in words.

        Example:
            >>> from anabranch.apps import word_count
            >>> plan = Plan.sequential(word_count.build())
            >>> plan.diff(plan.with_replicas("count", 4))
            ['1 → 4 replicas of region count, 192 of 256 buckets move']
        """
        if self.fingerprint != other.fingerprint:
            raise PlanError(
                Subject("plan", self.flow),
                f"a plan of the same flow ({self.fingerprint})",
                f"one for {other.flow!r} ({other.fingerprint})",
                "compare plans of one flow",
            )
        lines = []
        for old in self.regions:
            lines += _diff_region(old, other.region(old.region))
        for before in self.sources:
            after = other.source(before.source)
            for name in ("replicas", "in_flight_limit", "batch_rows"):
                if getattr(before, name) != getattr(after, name):
                    lines.append(
                        f"{getattr(before, name)} → {getattr(after, name)} "
                        f"{name.replace('_', ' ')} of source {before.source}"
                    )
            if before.workers != after.workers:
                lines.append(
                    f"workers of source {before.source}: {_on(before.workers)} → "
                    f"{_on(after.workers)}"
                )
        return lines

    def to_json(self) -> str:
        """As JSON text."""
        told = asdict(replace(self, shape=None))
        del told["shape"]  # the flow's, not the plan's
        return json.dumps(told, indent=2)

    @staticmethod
    def from_json(text: str) -> Plan:
        """From JSON text written by `to_json`."""
        try:
            return fitted(json.loads(text), Plan)
        except (ValueError, RecursionError) as error:
            raise PlanError(
                Subject("plan"),
                "JSON with flow, fingerprint, regions and sources",
                str(error),
                "write it with Plan.to_json or `anabranch plan --json`",
            ) from error

    def svg(self) -> str:
        """A picture: regions, pipelines inside, steps inside those, replicas as cards."""
        from anabranch.pictures.svg import plan_svg  # few processes draw

        if self.shape is None:
            raise PlanError(
                Subject("plan", self.flow),
                "a plan that knows its flow's shape",
                "one from a file",
                "replace(plan, shape=shape_of(flow)) tells it",
            )
        replicas = {r.region: r.replicas for r in self.regions}
        replicas |= {s.source: s.replicas for s in self.sources}
        pipelines = {r.region: r.pipelines for r in self.regions}
        return plan_svg(self.shape, pipelines, replicas, f"plan for {self.flow}")

    def _repr_svg_(self) -> str | None:
        """The picture that notebooks show; None where it cannot be drawn, then they print."""
        return self.svg() if self.shape is not None else None

    def __repr__(self) -> str:
        """A tree a human can read."""
        blocks = [[_source_line(s)] for s in self.sources] + [
            _region_lines(r) for r in self.regions
        ]
        lines = [f"plan for {self.flow}"]
        for number, block in enumerate(blocks):
            last = number == len(blocks) - 1
            lines.append(("└─ " if last else "├─ ") + block[0])
            lines += [("   " if last else "│  ") + line for line in block[1:]]
        return "\n".join(lines)


def _validate_region(plan: RegionPlan, region: Region) -> None:
    def refuse(expected: str, got: str, remedy: str) -> None:
        raise PlanError(Subject("region", region.name), expected, got, remedy)

    steps = tuple(s for p in plan.pipelines for s in p)
    if steps != region.steps or any(not p for p in plan.pipelines):
        refuse(
            f"pipelines over the steps {list(region.steps)} in order",
            str([list(p) for p in plan.pipelines]),
            "cut that run into non-empty pieces",
        )
    if plan.replicas < 1:
        refuse("at least one replica", str(plan.replicas), "change replicas")
    if plan.replicas > 1 and region.serial is not None and not region.replicable:
        refuse(f"one replica, as it {region.serial.value}", str(plan.replicas), "change replicas")
    buckets = region.buckets if region.mapped else 0
    if region.mapped and plan.replicas > buckets:
        refuse(
            f"at most {buckets} replicas, one for each bucket",
            str(plan.replicas),
            "ask for fewer, or for a new checkpoint set more buckets, Flow(buckets=…)",
        )
    if len(plan.bucket_map) != buckets:
        refuse(
            f"a bucket map of {buckets} buckets",
            str(len(plan.bucket_map)),
            "the number of buckets is fixed when the flow first starts",
        )
    owners = set(plan.bucket_map)
    if owners and (min(owners) < 0 or max(owners) >= plan.replicas):
        refuse(f"owners in 0..{plan.replicas - 1}", str(sorted(owners)), "name existing replicas")
    if plan.placement and len(plan.placement) != plan.replicas:
        refuse(
            f"a place for each of {plan.replicas} replicas",
            str(list(plan.placement)),
            "give one place per replica, or none",
        )
    rows = plan.range_rows
    if rows != RANGE_ROWS and region.kind is not RegionKind.SINK:
        refuse("range_rows for a sink alone", str(rows), "leave it out")
    if not 1 <= rows <= MOST_RANGE_ROWS or rows & (rows - 1):
        refuse(f"range_rows as a power of two up to {MOST_RANGE_ROWS}", str(rows), "round it up")
    units = plan.replicas * len(plan.pipelines)
    if plan.workers and (len(plan.workers) != units or min(plan.workers) < 0):
        refuse(
            f"a worker from 0 on for each of {units} pipelines",
            str(list(plan.workers)),
            "give one worker per pipeline of each replica, or none",
        )


def _validate_source(plan: SourcePlan, region: Region) -> None:
    if plan.replicas > 1 and region.serial is not None:
        raise PlanError(
            plan.source,
            f"one reader, as it {region.serial.value}",
            str(plan.replicas),
            "change replicas",
        )
    bad = (
        plan.replicas < 1
        or plan.batch_rows < 1
        or (plan.in_flight_limit is not None and plan.in_flight_limit < 1)
        or (plan.workers and (len(plan.workers) != plan.replicas or min(plan.workers) < 0))
    )
    if bad:
        expected = "positive replicas, batch_rows and in_flight_limit, a worker for each reader"
        raise PlanError(plan.source, expected, repr(plan), "give at least 1")


def _diff_region(old: RegionPlan, new: RegionPlan) -> list[str]:
    lines = []
    count = len(moved(old.bucket_map, new.bucket_map))
    moving = f", {count} of {len(old.bucket_map)} buckets move" if count else ""
    if old.replicas != new.replicas:
        lines.append(f"{old.replicas} → {new.replicas} replicas of region {old.region}{moving}")
    elif count:
        lines.append(f"region {old.region}{moving}".replace(", ", ": ", 1))
    if old.pipelines != new.pipelines:
        lines.append(f"pipelines of region {old.region}: {_show(old)} → {_show(new)}")
    if old.range_rows != new.range_rows:
        lines.append(f"{old.range_rows} → {new.range_rows} rows a range of sink {old.region}")
    if old.workers != new.workers:
        lines.append(f"workers of region {old.region}: {_on(old.workers)} → {_on(new.workers)}")
    if old.placement != new.placement:
        lines.append(
            f"placement of region {old.region}: {list(old.placement)} → {list(new.placement)}"
        )
    return lines


def _on(workers: tuple[int, ...]) -> str:
    return ", ".join(map(str, workers)) or "any"


def _show(plan: RegionPlan) -> str:
    return " | ".join(" · ".join(p) for p in plan.pipelines)


def _region_lines(plan: RegionPlan) -> list[str]:
    title = f"{plan.region}: {plan.replicas} replica" + ("s" if plan.replicas > 1 else "")
    if plan.bucket_map and plan.replicas > 1:
        sizes = sorted({plan.bucket_map.count(r) for r in range(plan.replicas)})
        title += f", {'–'.join(map(str, (sizes[0], sizes[-1])[: len(sizes)]))} buckets each"
    if plan.placement:
        title += f" at {', '.join(plan.placement)}"
    if plan.workers:
        title += f" on workers {_on(plan.workers)}"
    ends = ["├─ "] * (len(plan.pipelines) - 1) + ["└─ "]
    return [title] + [e + " · ".join(p) for e, p in zip(ends, plan.pipelines, strict=True)]


def _source_line(plan: SourcePlan) -> str:
    readers = f"{plan.replicas} reader" + ("s" if plan.replicas > 1 else "")
    limit = f", {plan.in_flight_limit} in flight" if plan.in_flight_limit else ""
    workers = f" on workers {_on(plan.workers)}" if plan.workers else ""
    return f"source {plan.source}: {readers}, {plan.batch_rows} rows a batch{limit}{workers}"
