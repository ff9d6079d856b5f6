"""The clock of this machine's processors, where the system tells."""

from __future__ import annotations

import re
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")
MAX_KHZ = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")


def clock_ghz(info: Path = CPU_INFO, max_khz: Path = MAX_KHZ) -> float | None:
    """The greatest clock of the first processor, or its nominal one; None if nobody says.

    Not its clock at this moment: two files taken minutes apart would seem to be of two machines.
    """
    try:
        return round(int(max_khz.read_text()) / 1e6, 3)
    except (OSError, ValueError):
        pass
    try:
        found = re.search(r"^model name.*@ ([\d.]+)GHz", info.read_text(), re.MULTILINE)
    except OSError:
        return None
    return float(found[1]) if found else None
