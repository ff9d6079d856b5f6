"""The clock of this machine's processors, where the system tells."""

from __future__ import annotations

import re
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")
MAX_KHZ = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")


def clock_ghz(info: Path = CPU_INFO, max_khz: Path = MAX_KHZ) -> float | None:
    """The greatest clock of the first processor, or its clock now; None if nobody says."""
    try:
        return round(int(max_khz.read_text()) / 1e6, 3)
    except (OSError, ValueError):
        pass
    try:
        found = re.search(r"^cpu MHz\s*:\s*([\d.]+)", info.read_text(), re.MULTILINE)
    except OSError:
        return None
    return round(float(found[1]) / 1000, 3) if found and float(found[1]) > 0 else None
