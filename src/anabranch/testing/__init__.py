"""The public test kit: two runners that define what a flow means, and `check`."""

from anabranch.testing.checking import Report, check
from anabranch.testing.interleaved import run_interleaved
from anabranch.testing.random_plans import random_plan
from anabranch.testing.result import RunResult
from anabranch.testing.sequential import run_sequential

__all__ = [
    "Report",
    "RunResult",
    "check",
    "random_plan",
    "run_interleaved",
    "run_sequential",
]
