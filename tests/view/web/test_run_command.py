"""`anabranch run --dashboard`: a page that is open when a run ends knows how it ended."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

MADE = "tests.view.web.made"
ENDS = {
    "stopped": ((f"{MADE}:paced_flow", "--seconds", "1.5"), 0, (False, "")),
    "ended": ((f"{MADE}:paced_flow", "--rows", "30000"), 0, (True, "")),
    "failed": ((f"{MADE}:failing_flow",), 1, (False, "the well is dry")),
}


@pytest.mark.parametrize("case", ENDS)
def test_a_page_hears_the_end_of_a_run(case):
    arguments, code, (whole, error) = ENDS[case]
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
        with urllib.request.urlopen(url + "api/stream", timeout=30) as stream:
            told = [json.loads(line[6:]) for line in stream if line.startswith(b"data: ")]
        out, errors = run.communicate(timeout=30)
    assert (run.returncode, "Traceback" in errors) == (code, False)
    last = told[-1]
    assert last["kind"] == "ended"
    assert last["ended"]["whole"] == whole
    assert error in last["ended"]["error"]
    assert bool(last["ended"]["error"]) == bool(error)
    if not code:
        assert last["rows_in"] == json.loads(out)["rows_in"]
