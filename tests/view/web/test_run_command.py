"""`anabranch run --dashboard`: a page that is open when a run ends knows how it ended."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.sampling import few

MADE = "tests.view.web.made"
PER_S = 20_000
LENGTHS_S = (1.5, 8.0, 40.0)
"""A page that is opened too late, on a busy machine, gets a longer run."""
ENDS = {
    "stopped": (f"{MADE}:paced_flow", "--seconds {seconds}", 0, (False, "")),
    "ended": (f"{MADE}:paced_flow", "--rows {rows}", 0, (True, "")),
    "failed": (f"{MADE}:failing_flow", "--set rows={rows}", 1, (False, "the well is dry")),
}


@pytest.mark.parametrize("case", few(ENDS, 1))
def test_a_page_hears_the_end_of_a_run(case):
    flow, length, code, (whole, error) = ENDS[case]
    for seconds in LENGTHS_S:
        options = length.format(seconds=seconds, rows=int(seconds * PER_S)).split()
        returned, out, errors, told = ran_with_a_page(flow, *options)
        if told:
            break
    assert (returned, "Traceback" in errors) == (code, False)
    last = told[-1]
    assert last["kind"] == "ended"
    assert last["ended"]["whole"] == whole
    assert error in last["ended"]["error"]
    assert bool(last["ended"]["error"]) == bool(error)
    if not code:
        assert last["rows_in"] == json.loads(out)["rows_in"]


def ran_with_a_page(*arguments: str) -> tuple[int, str, str, list[dict[str, Any]]]:
    """How a run ended, what it said, and what a page heard of it; nothing if it came too late."""
    command = [sys.executable, "-m", "anabranch.cli", "run", *arguments]
    command += ["--engine", "local", "--policy", "none", "--dashboard", "0", "--json"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    ) as run:
        url = re.search(r"http://127\.0\.0\.1:\d+/", run.stderr.readline())[0]
        told = heard(url + "api/stream")
        out, errors = run.communicate(timeout=60)
    return run.returncode, out, errors, told


def heard(url: str) -> list[dict[str, Any]]:
    try:
        opened = urllib.request.urlopen(url, timeout=60)
    except OSError:  # the page is gone with its run
        return []
    with opened as stream:
        return [json.loads(line[6:]) for line in stream if line.startswith(b"data: ")]
