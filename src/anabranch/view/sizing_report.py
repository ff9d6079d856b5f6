"""What applications need, for people and for programs."""

from __future__ import annotations

from math import isfinite
from typing import Any

from anabranch.planning.answer import RegionChoice
from anabranch.planning.sizing import MODEL_ERROR, Fit, Found, Sizing
from anabranch.view.plan_report import counted

SURE = (
    f"how sure: from costs {MODEL_ERROR:.0%} below the profile's to costs {MODEL_ERROR:.0%} above "
    "them and a deviation of what was measured;\n  three in four plans that were measured were "
    "predicted that well. Latency is from a rough model of queues: expect a factor of two."
)


def in_words(found: Sizing) -> str:
    """One application: cores, plan, and how sure that is."""
    lines = [f"{found.name}: {asked(found)}", needed(found), *details(found)]
    return "\n".join([*lines, *([SURE] if isinstance(found.fit, Fit) else [])])


def side_by_side(first: Sizing, second: Sizing) -> str:
    """Two topologies of one application, and which needs less."""
    lines = [asked(first)]
    for each in (first, second):
        lines += [f"{each.name}: {needed(each)}", *details(each)]
    return "\n".join([*lines, which(first, second), SURE])


def which(first: Sizing, second: Sizing) -> str:
    """Which of two needs less."""
    if not isinstance(first.fit, Fit) or not isinstance(second.fit, Fit):
        able = [s.name for s in (first, second) if isinstance(s.fit, Fit)]
        return f"only {able[0]} can do it" if able else "neither can do it"
    a, b = first.fit, second.fit
    if a.cores == b.cores:
        return (
            f"both need {counted(a.cores, 'core')}; {first.name} keeps {a.busy_cores:.2f} busy, "
            f"{second.name} {b.busy_cores:.2f}"
        )
    less, more = (first, second) if a.cores < b.cores else (second, first)
    fewer, greater = sorted((a.cores, b.cores))
    return f"{less.name} needs less: {counted(fewer, 'core')}, {more.name} {greater}"


def asked(found: Sizing) -> str:
    """What is asked for."""
    target = found.target
    within = "" if target.latency_ms is None else f", 99 % within {target.latency_ms:g} ms"
    return f"{target.rate_per_s:,.0f} rows/s{within}, {target.headroom:.0%} headroom"


def needed(found: Sizing) -> str:
    """How many cores, or why none; an interval only where it is one."""
    fit = found.fit
    if not isinstance(fit, Fit):
        rate = fit.what == "rate"
        best = f"{fit.best:,.0f} rows/s at most" if rate else f"{milliseconds(fit.best)} at best"
        perhaps = ""
        if isinstance(found.well, Fit):
            perhaps = f" (if costs are as low as may be, {counted(found.well.cores, 'core')} do)"
        return f"cannot be done{perhaps}: {best}; {fit.because}"
    low, high = _cores(found.well), _cores(found.badly)
    if low == high == str(fit.cores):
        return counted(fit.cores, "core")
    return f"{counted(fit.cores, 'core')} ({low} to {high})"


def _cores(found: Found) -> str:
    return str(found.cores) if isinstance(found, Fit) else "none would do"


def details(found: Sizing) -> list[str]:
    """What the cores give, and the plan."""
    fit = found.fit
    if not isinstance(fit, Fit):
        return []
    rows = f", batches of up to {fit.batch_rows:,} rows" if fit.batch_rows > 1 else ""
    return [
        f"  carries up to {fit.rate_per_s:,.0f} rows/s, keeps {fit.busy_cores:.2f} cores busy",
        f"  99 % within {milliseconds(fit.latency_ms)}{rows}",
        *(f"  {counted(r.replicas, 'replica')} of {_runs(r)}" for r in fit.answer.regions),
    ]


def milliseconds(value: float) -> str:
    """A time, as exact as it is worth.

    Example:
        >>> milliseconds(0.12345), milliseconds(1234.5)
        ('0.123 ms', '1,234 ms')
    """
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"


def _runs(region: RegionChoice) -> str:
    return " | ".join(" · ".join(pipeline) for pipeline in region.pipelines)


def as_object(found: Sizing) -> dict[str, Any]:
    """As JSON."""
    target = found.target
    told: dict[str, Any] = {
        "name": found.name,
        "rate_per_s": target.rate_per_s,
        "latency_ms": target.latency_ms,
        "headroom": target.headroom,
    }
    for name, each in (("fit", found.fit), ("well", found.well), ("badly", found.badly)):
        told[name] = _found_object(each)
    return told


def _found_object(found: Found) -> dict[str, Any]:
    if not isinstance(found, Fit):
        return {
            "cores": None,
            "what": found.what,
            "best": _finite(found.best),
            "because": found.because,
        }
    return {
        "cores": found.cores,
        "rate_per_s": found.rate_per_s,
        "busy_cores": found.busy_cores,
        "latency_p99_ms": _finite(found.latency_ms),
        "batch_rows": found.batch_rows,
        "threads": found.answer.threads,
        "regions": [
            {"pipelines": [list(p) for p in region.pipelines], "replicas": region.replicas}
            for region in found.answer.regions
        ],
    }


def _finite(value: float) -> float | None:
    """JSON has no number for what has no end."""
    return value if isfinite(value) else None
