"""Which processor time is ours, and what is left for others to have used."""

import subprocess
import sys

import pytest

from papers.processor_time import Look, cores_busy_s, least_free_share, usage

SPENT_S = 0.3
BURN = f"""
import subprocess, sys, time
if len(sys.argv) > 1:
    subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
while time.process_time() < {SPENT_S}:
    pass
print("spent", flush=True)
sys.stdin.read()
"""


def own_s() -> float:
    found = usage()
    return found.user_s + found.kernel_s


def test_what_children_and_their_children_spend_is_ours_while_they_live_and_afterwards():
    before_s, busy_before_s = own_s(), cores_busy_s()
    command = [sys.executable, "-c", BURN, BURN.replace("sys.stdin.read()", "")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == child.stdout.readline() == b"spent\n"
        living_s = own_s() - before_s
        child.communicate()
    ended_s = own_s() - before_s
    assert min(living_s, ended_s) >= 2 * SPENT_S - 0.05
    assert cores_busy_s() - busy_before_s >= 2 * SPENT_S - 0.05


def test_no_stretch_makes_up_for_another_one():
    looks = [Look(0.0, 0.0, 0.0), Look(10.0, 10.0, 0.0), Look(20.0, 10.0, 0.0)]
    assert least_free_share(looks, cores=1) == 0.0
    assert least_free_share([looks[0], looks[2]], cores=1) == 0.5


@pytest.mark.parametrize("own", [10.0, 10.5])
def test_a_machine_that_does_nothing_else_is_free(own):
    """Clocks are read in turn: we may seem to have spent more than cores were busy."""
    assert least_free_share([Look(0.0, 0.0, 0.0), Look(10.0, 10.0, own)], cores=1) == 1.0


def test_moments_are_too_short_to_tell():
    looks = [Look(0.0, 0.0, 0.0), Look(0.1, 0.1, 0.0), Look(5.1, 1.1, 0.0)]
    assert least_free_share(looks, cores=1) == 0.8
