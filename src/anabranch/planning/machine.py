"""Machines: what planners and the simulator know of where an application runs.

Sockets with cores, what it takes to reach from one socket into another's memory, and, for several
hosts, what a network between them takes. A file comes from `anabranch calibrate`, or is written by
hand; `cores=8` is a machine of one socket.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from anabranch.errors import PlanError, Subject
from anabranch.planning.models.spark import SparkCosts
from anabranch.planning.profile import NANOSECONDS, Overheads, Profile
from anabranch.planning.typed_json import (
    Amount,
    Count,
    Positive,
    Text,
    as_document,
    parsed,
    refused,
)

Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Machine:
    """A machine, or several alike.

    Attributes:
        name: What it is called.
        sockets: How many there are, over all nodes.
        cores_per_socket: Cores of each.
        ghz: Clock; None if unknown.
        cache_line_bytes: What one access to memory brings.
        latency_ns: From a socket (row) into the memory of another; empty for none.
        bandwidth_mb_s: Of the same; the diagonal is a socket's own memory; empty for no bound.
        nodes: Hosts that the sockets are spread over, in order.
        network_us: Time that a jumbo tuple takes from node to node.
        network_mb_s: What one node can send; None for no bound.
        parallel_share: Speed of all cores at work at once, as a part of their speeds one by one.
        overheads: What parallelism costs in each engine, in nanoseconds.
        spark: What Spark takes there; None if nobody measured it.

    Example:
        >>> Machine.of_cores(8).cores
        8
    """

    name: Text
    sockets: Count
    cores_per_socket: Count
    ghz: Positive | None = None
    cache_line_bytes: Count = 64
    latency_ns: tuple[tuple[Amount, ...], ...] = ()
    bandwidth_mb_s: tuple[tuple[Positive, ...], ...] = ()
    nodes: Count = 1
    network_us: Amount = 0.0
    network_mb_s: Positive | None = None
    parallel_share: Positive = 1.0
    overheads: Mapping[str, Overheads] = field(default_factory=dict)
    spark: SparkCosts | None = None

    def __post_init__(self) -> None:
        """Check sizes."""
        for name in ("sockets", "cores_per_socket", "nodes", "cache_line_bytes"):
            if getattr(self, name) < 1:
                raise PlanError(
                    Subject("field", f"machine.{name}"),
                    "1 or more",
                    str(getattr(self, name)),
                    "count again",
                )
        for name in ("latency_ns", "bandwidth_mb_s"):
            matrix: Matrix = getattr(self, name)
            sizes = [len(row) for row in matrix]
            if matrix and sizes != [self.sockets] * self.sockets:
                raise PlanError(
                    Subject("field", f"machine.{name}"),
                    f"a matrix of {self.sockets} × {self.sockets}, one row per socket",
                    f"rows of {sizes}",
                    "give each row a value per socket",
                )
        if self.sockets % self.nodes:
            raise PlanError(
                Subject("field", "machine.nodes"),
                f"a divisor of {self.sockets} sockets",
                str(self.nodes),
                "spread them evenly",
            )
        if not 0 < self.parallel_share <= 1:
            raise PlanError(
                Subject("field", "machine.parallel_share"),
                "above 0 and at most 1",
                str(self.parallel_share),
                "measure it",
            )

    @staticmethod
    def of_cores(cores: int) -> Machine:
        """A machine of one socket."""
        return Machine(f"cores={cores}", 1, cores)

    @property
    def cores(self) -> int:
        """All cores."""
        return self.sockets * self.cores_per_socket

    @property
    def capacity(self) -> float:
        """What all cores do at once, in cores that work alone."""
        return self.cores * self.parallel_share if self.cores > 1 else 1.0

    def node_of(self, socket: int) -> int:
        """The node that a socket belongs to."""
        return socket // (self.sockets // self.nodes)

    def latency(self, producer: int, consumer: int) -> float:
        """Nanoseconds for one cache line from one socket's memory to another socket."""
        return (
            self.latency_ns[producer][consumer] if self.latency_ns and producer != consumer else 0.0
        )

    def bandwidth(self, producer: int, consumer: int) -> float:
        """Bytes per nanosecond from one socket's memory to a socket."""
        if not self.bandwidth_mb_s:
            return float("inf")
        return self.bandwidth_mb_s[producer][consumer] * 1e6 / 1e9


def with_overheads(profile: Profile, machine: Machine, engine: str = "local") -> Profile:
    """A profile that does not say what parallelism costs takes that from the machine's file."""
    known = machine.overheads.get(engine)
    if profile.overheads is not None or known is None:
        return profile
    unit = NANOSECONDS[profile.unit or "ns"]
    return replace(
        profile, overheads=Overheads(known.thread_switch / unit, known.replication / unit)
    )


# Machines as files: JSON that `anabranch calibrate` writes and people can write by hand.


def read_machine(text: str, name: str = "machine") -> Machine:
    """A machine from the text of a file; fields that planners do not use may stand in it, too.

    Example:
        >>> read_machine('{"sockets": 2, "cores_per_socket": 8}').cores
        16
        >>> read_machine('{"cores": 4}').cores
        4
    """
    file = Subject("machine", name)
    content = parsed(text, file)
    if not content.keys() & {"cores_per_socket", "cores"}:
        expected = "sockets and cores_per_socket, or cores"
        raise PlanError(file, expected, str(list(content)), "add them")
    usual = {"name": name, "sockets": 1, "cores_per_socket": _cores_per_socket(content, file)}
    spark_costs(content, file)
    overheads = content.get("overheads")
    for engine, each in overheads.items() if isinstance(overheads, dict) else ():
        as_document(each, file, Overheads, f".overheads.{engine}", strict=False)
    return as_document(usual | content, file, Machine, strict=False)


def _cores_per_socket(content: dict[str, Any], file: Subject) -> int:
    """Spread the cores over the sockets, where a file says how many there are in all."""
    if "cores_per_socket" in content:
        return 1
    cores = as_document(content["cores"], file, Count, ".cores")
    sockets = as_document(content.get("sockets", 1), file, Count, ".sockets")
    if cores % sockets:
        expected = f"a multiple of {sockets} sockets"
        raise refused(file, ".cores", expected, str(cores), "give cores_per_socket")
    return cores // sockets


def machine_text(machine: Machine) -> str:
    """A machine as the text of a file, which `read_machine` reads back."""
    usual = asdict(Machine(machine.name, machine.sockets, machine.cores_per_socket))
    kept = ("name", "sockets", "cores_per_socket")
    data: dict[str, Any] = {
        field: value
        for field, value in asdict(machine).items()
        if field in kept or value != usual[field]
    }
    return json.dumps(data, indent=2) + "\n"


# Spark's costs in the file of a machine, under `spark`.


def read_spark_costs(text: str, name: str = "machine") -> SparkCosts | None:
    """What a machine's file says of Spark; None if nobody measured it there.

    Example:
        >>> read_spark_costs('{"cores": 2, "spark": {"batch_s": 0.2}}').batch_s
        0.2
        >>> read_spark_costs('{"cores": 2}') is None
        True
    """
    file = Subject("machine", name)
    return spark_costs(parsed(text, file), file)


def spark_costs(content: Mapping[str, object], file: Subject) -> SparkCosts | None:
    """Return Spark's costs in the content of a machine's file."""
    return as_document(content["spark"], file, SparkCosts, ".spark") if "spark" in content else None


def with_spark_costs(text: str, costs: SparkCosts) -> str:
    """The text of a machine's file, with what was measured of Spark."""
    return json.dumps({**json.loads(text), "spark": asdict(costs)}, indent=2) + "\n"
