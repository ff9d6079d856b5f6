"""The Makefile finds a Python by itself."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
STUB = "#!/bin/sh\necho 'no such version is installed' >&2\nexit 127\n"
OLD = "#!/bin/sh\nexit 1\n"  # as an interpreter that is asked for 3.11 and is older


def chosen(folder: Path, **found: str) -> str:
    """The command that would make the environment, where PATH holds these and no other Python."""
    for name, content in found.items():
        program = folder / name.replace("_", ".")
        program.write_text(content)
        program.chmod(0o755)
    for tool in ("sh", "make", "awk", "grep", "basename"):
        place = subprocess.run(
            ["sh", "-c", f"command -v {tool}"], capture_output=True, text=True, check=True
        )
        (folder / tool).symlink_to(place.stdout.strip())
    done = subprocess.run(
        [str(folder / "make"), "-n", "-B", ".venv/.locked"],
        cwd=REPOSITORY,
        env={"PATH": str(folder), "MAKEFLAGS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if "-m venv" in line)
    return line.split()[0]


PYTHON = f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"python3_11": PYTHON}, "python3.11"),
        ({"python3_12": PYTHON, "python3_11": PYTHON}, "python3.12"),
        ({"python3_13": STUB, "python3_12": PYTHON}, "python3.12"),
        ({"python3_11": STUB, "python3": PYTHON}, "python3"),
        ({"python3": OLD, "python": PYTHON}, "python"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else value,
)
def test_the_newest_python_that_runs_makes_the_environment(tmp_path, found, expected):
    assert chosen(tmp_path, **found) == expected
