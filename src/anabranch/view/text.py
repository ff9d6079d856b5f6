"""Short texts of views about a run, safe to show on any terminal."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.events import BatchTimes, Observation, Reconfiguration
from anabranch.planning.plan import Plan, SourcePlan
from anabranch.view.plan_report import counted

RECENT = 5
"""So many observations are lately: enough for a rate that does not jump."""


def known_lag_ms(seen: Observation) -> float | None:
    """How long tuples had waited to be read, where a source can tell; see `Observation.lag_ms`."""
    return seen.lag_ms if any(each.lag_ms is not None for each in seen.sources) else None


def lag_lines(seen: Observation) -> list[str]:
    """How long tuples waited to be read, and how long they took from there to their results."""
    lag_ms = known_lag_ms(seen)
    if lag_ms is None:
        return []
    whole = latency_line(lag_ms + seen.latency_p50_ms, lag_ms + seen.latency_p99_ms)
    return [f"lag      {milliseconds(lag_ms)} in the queue; end to end {whole}"]


def work_line(seen: Observation) -> str:
    """The newest batch, or what was done since the last look where there are none."""
    if seen.in_batches:
        return f"batch    {seen.batch}: {seen.rows_in:,} rows, {times_line(seen.times)}"
    waiting = sum(region.queue_rows for region in seen.regions)
    return (
        f"work     {seen.rows_in:,} rows, {processor_line(seen.times)}; "
        f"{waiting:,.0f} rows between steps"
    )


def backlog_line(seen: Observation) -> str:
    """How many rows wait to be read; unknown as soon as one source cannot tell.

    Example:
        >>> from anabranch.events import SourceMetrics
        >>> both = (SourceMetrics("a", 10, 5.0, 70), SourceMetrics("b", 10, 5.0, 1000))
        >>> times = BatchTimes(1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        >>> backlog_line(Observation(1.0, 0, 0, 0, times, 0.0, 0.0, sources=both))
        '1,070 rows'
    """
    waiting = seen.backlog_rows
    return "unknown" if waiting is None else f"{waiting:,} rows"


def latency_line(p50_ms: float, p99_ms: float) -> str:
    """Latencies, with a digit behind the point where it matters.

    Example:
        >>> latency_line(1.26, 1234.5)
        '1.3 ms p50, 1,234 ms p99'
    """
    return f"{milliseconds(p50_ms)} p50, {milliseconds(p99_ms)} p99"


def milliseconds(value: float) -> str:
    """A duration in milliseconds; engines on threads take less than one.

    Example:
        >>> milliseconds(0.42), milliseconds(42.4)
        ('0.4 ms', '42 ms')
    """
    return f"{value:.1f} ms" if value < 10 else f"{value:,.0f} ms"


def recent_rate_per_s(recent: Sequence[Observation]) -> float:
    """Rows a second over the newest observations: what every view calls the rate.

    Example:
        >>> times = BatchTimes(1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        >>> seen = [Observation(at_s, 0, 300, 0, times, 0.0, 0.0) for at_s in (2.0, 4.0)]
        >>> recent_s(seen), recent_rate_per_s(seen), recent_rate_per_s([])
        (3.0, 200.0, 0.0)
    """
    seconds = recent_s(recent)
    return sum(each.rows_in for each in recent) / seconds if seconds > 0 else 0.0


def recent_s(recent: Sequence[Observation]) -> float:
    """How long some observations took together, with the time between batches."""
    return recent[-1].at_s - recent[0].at_s + recent[0].times.total_s if recent else 0.0


def plan_line(plan: Plan) -> str:
    """A plan in one line: readers and batch size of sources, replicas of regions."""
    readers = [f"{s.source} {readers_line(s)}" for s in plan.sources]
    regions = [
        f"{r.region} {r.replicas}"
        + (f" in {len(r.pipelines)} pipelines" if len(r.pipelines) > 1 else "")
        for r in plan.regions
    ]
    return " · ".join(readers + regions)


def readers_line(source: SourcePlan) -> str:
    """How a source is read.

    Example:
        >>> readers_line(SourcePlan("lines", 2, batch_rows=1000))
        '2 readers × 1,000 rows'
    """
    return f"{counted(source.replicas, 'reader')} × {source.batch_rows:,} rows"


def change_line(change: Reconfiguration) -> str:
    """A plan change in one line: when, what, and how long tuples stood still."""
    return f"at {change.at_s:.1f} s: {moved_line(change)}"


def moved_line(change: Reconfiguration) -> str:
    """What a plan change changed, and how long tuples stood still."""
    what = "; ".join(change.moved) or "the same plan"
    return f"{what} ({milliseconds(change.pause_ms)} pause)"


def times_line(times: BatchTimes) -> str:
    """Where the time of a batch went.

    Example:
        >>> times_line(BatchTimes(0.5, 0.2, 0.1, 0.0, 0.15, 0.03, 0.02))
        '0.50 s = 0.20 fixed + 0.10 scan + 0.00 shuffle + 0.15 compute + 0.03 state + 0.02 sink'
    """
    parts = ("fixed", "scan", "shuffle", "compute", "state", "sink")
    split = " + ".join(f"{getattr(times, f'{part}_s'):.2f} {part}" for part in parts)
    return f"{times.total_s:.2f} s = {split}"


def processor_line(times: BatchTimes) -> str:
    """What threads spent of their processors in some time; side by side it may be more than that.

    Example:
        >>> processor_line(BatchTimes(1.0, 0.0, 0.3, 0.0, 1.2, 0.0, 0.1))
        '1.60 s of processor in 1.0 s = 0.30 scan + 1.20 compute + 0.10 sink'
    """
    spent = {"scan": times.scan_s, "compute": times.compute_s, "sink": times.sink_s}
    split = " + ".join(f"{seconds:.2f} {part}" for part, seconds in spent.items())
    return f"{sum(spent.values()):.2f} s of processor in {times.total_s:.1f} s = {split}"


def duration(seconds: float) -> str:
    """A time since the start, as exact as it is worth.

    Example:
        >>> duration(42.4), duration(192), duration(3720)
        ('42 s', '3 min 12 s', '1 h 2 min')
    """
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole // 60 % 60} min"


# Text that any terminal can show: nothing in a name may move its cursor or change its colours.

BLOCKS = "▁▂▃▄▅▆▇█"
IN_ASCII = str.maketrans("░├└─│·→×…–" + BLOCKS, ".|`-|+>x~-" + "__..--##")


def printable(text: str, ascii_only: bool = False) -> str:
    r"""A text without what a terminal would take for a command.

    Example:
        >>> printable("a\x1b[2Jb\nc"), printable("1 → 2 … é", ascii_only=True)
        ('a�[2Jb�c', '1 > 2 ~ ?')
    """
    if not text.isprintable():
        text = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    if ascii_only:
        text = text.translate(IN_ASCII).encode("ascii", "replace").decode()
    return text


def bar(share: float, cells: int) -> str:
    """A part of 1 as a bar.

    Example:
        >>> bar(0.52, 10)
        '█████░░░░░'
    """
    full = round(min(max(share, 0.0), 1.0) * cells)
    return "█" * full + "░" * (cells - full)


def curve(values: Sequence[float | None]) -> str:
    """Values over time as one line, the highest as a full block; blank where there is none.

    Example:
        >>> curve([None, 0.0, 5.0, 10.0])
        ' ▁▅█'
    """
    highest = max((value for value in values if value is not None), default=0.0)
    steps = len(BLOCKS) - 1
    return "".join(
        " " if value is None else BLOCKS[round(steps * value / highest) if highest else 0]
        for value in values
    )
