"""A JVM that lives for minutes is better off without its second compiler: half the work to start.

The compiler that is left out pays after many minutes, and has two cores to share with everybody.
"""

from __future__ import annotations

import os

OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
VARIABLE = {"JDK_JAVA_OPTIONS": OPTIONS}
"""For whoever starts a JVM, however they do; it says so on standard error."""


def environment() -> dict[str, str]:
    """Ours, for such a program."""
    return dict(os.environ) | VARIABLE
