"""A Spark standalone cluster on loopback: a master and workers, each a process group of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

from anabranch.engines.spark.java import ensure_java

HOST = "127.0.0.1"
START_S = 60
MASTER, WORKER = "master.Master", "worker.Worker"


@dataclass
class Member:
    """A process of the cluster, and those that it starts."""

    process: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        """At once, with its executors."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(START_S)

    def await_word(self, word: str) -> None:
        """Wait until its log says something."""
        until = time.monotonic() + START_S
        while word not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, f"no {word!r} in {self.log.read_text()}"
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.1)


@dataclass(frozen=True)
class Cluster:
    """What runs; `master` is the URL for drivers."""

    master: str
    workers: list[Member]
    environment: dict[str, str]


@contextmanager
def cluster(directory: Path, workers: int) -> Iterator[Cluster]:
    """Start a master and workers with one core each; nothing of them is left afterwards."""
    environment = dict(os.environ)
    ensure_java(environment)
    environment |= {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    members: list[Member] = []

    def start(kind: str, *arguments: str) -> Member:
        launcher = Path(environment["SPARK_HOME"]) / "bin" / "spark-class"
        log = directory / f"{len(members)}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [launcher, f"org.apache.spark.deploy.{kind}", "--host", HOST, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        members.append(Member(process, log))
        return members[-1]

    try:
        port = free_port()
        url = f"spark://{HOST}:{port}"
        master = start(MASTER, "--port", str(port), "--webui-port", str(free_port()))
        master.await_word("New state: ALIVE")
        started = [
            start(
                WORKER,
                *("--cores", "1", "--memory", "1500m", "--webui-port", str(free_port())),
                *("--work-dir", str(directory / f"worker-{number}"), url),
            )
            for number in range(workers)
        ]
        for worker in started:
            worker.await_word("Successfully registered with master")
        yield Cluster(url, started, environment)
    finally:
        for member in reversed(members):
            member.kill()


def free_port() -> int:
    """One that nobody uses now."""
    with socket.socket() as found:
        found.bind((HOST, 0))
        port: int = found.getsockname()[1]
        return port
