"""Several processes at one state cache, some of which die."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from anabranch.engines.spark.state_cache import StateCache
from tests.engines.spark.cached_states import LARGE, bytes_in, large


@pytest.fixture
def cache(tmp_path: Path) -> StateCache:
    return StateCache(tmp_path)


def start(body: str, directory: Path) -> subprocess.Popen[str]:
    """Another process with `cache` in place, for a dialogue line by line."""
    setting = """
        import os, sys
        from pathlib import Path
        from anabranch.engines.spark import state_cache as caching
        cache = caching.StateCache(Path(sys.argv[1]))
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(setting) + textwrap.dedent(body), str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def output_of(body: str, directory: Path) -> list[str]:
    return start(body, directory).communicate()[0].split()


def test_another_process_continues_in_place(cache: StateCache, tmp_path: Path) -> None:
    cache.put("1", [large(1)])
    body = """
        state = cache.claim("1")
        state[0][5] = 77
        print(cache.put("2", state).bytes_written)
    """
    (written,) = output_of(body, tmp_path)
    assert int(written) < 5_000
    found = cache.claim("2")
    assert found[0][4:7].tolist() == [1, 77, 1]


def test_of_several_processes_exactly_one_claims_an_entry(
    cache: StateCache, tmp_path: Path
) -> None:
    names = {f"s{number}" for number in range(300)}
    for name in names:
        cache.put(name, [name, np.arange(4)])
    body = """
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(300):
            state = cache.claim(f"s{number}")
            if state is not None:
                assert state[1].tolist() == [0, 1, 2, 3]
                print(state[0])
    """
    racers = [start(body, tmp_path) for _ in range(3)]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    claims = [name for racer in racers for name in racer.communicate()[0].split()]
    assert sorted(claims) == sorted(names)


def test_two_processes_copy_while_the_entry_stays(cache: StateCache, tmp_path: Path) -> None:
    cache.put("s", [large(1)])
    body = """
        state = cache.copy("s")
        state[0] += 1
        print(state[0][0], flush=True)
        sys.stdin.readline()
    """
    readers = [start(body, tmp_path) for _ in range(2)]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "2\n"
    assert cache.copy("s")[0][0] == 1
    for reader in readers:
        reader.communicate("\n")


def test_sweep_removes_what_a_killed_process_had_claimed(cache: StateCache, tmp_path: Path) -> None:
    cache.put("s", [large(1)])
    output_of("state = cache.claim('s'); os._exit(1)", tmp_path)
    assert bytes_in(tmp_path) == LARGE
    assert cache.claim("s") is None
    cache.sweep(["s"])
    assert not list(tmp_path.iterdir())


def test_sweep_removes_what_a_killed_process_had_half_made(
    cache: StateCache, tmp_path: Path
) -> None:
    body = """
        state = cache.claim("s")
        caching._write_index = lambda *_: os._exit(1)
        cache.put("t", [state])
    """
    cache.put("s", [large(1)])
    output_of(body, tmp_path)
    assert bytes_in(tmp_path) == 2 * LARGE  # one segment, still claimed and already linked
    assert cache.names() == set()
    cache.sweep(["t"])
    assert not list(tmp_path.iterdir())


def test_sweep_spares_what_another_process_has_claimed(cache: StateCache, tmp_path: Path) -> None:
    cache.put("s", [large(1)])
    body = """
        state = cache.claim("s")
        print("claimed", flush=True)
        sys.stdin.readline()
        print(cache.put("t", state).bytes_written)
    """
    process = start(body, tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "claimed\n"
    cache.sweep([])
    assert int(process.communicate("\n")[0]) < 5_000
    assert cache.claim("t")[0][0] == 1


def test_a_forked_child_neither_links_nor_removes_what_its_parent_claimed(
    cache: StateCache, tmp_path: Path
) -> None:
    cache.put("s", [large(1)])
    body = """
        state = cache.claim("s")
        child = os.fork()
        if not child:
            print(cache.put("child", state).bytes_written, flush=True)
            del state
            os._exit(0)
        os.waitpid(child, 0)
        print(cache.put("parent", state).bytes_written)
    """
    child, parent = map(int, output_of(body, tmp_path))
    assert child > LARGE
    assert parent < 5_000
