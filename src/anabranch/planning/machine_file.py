"""Machines as files: JSON that `anabranch calibrate` writes and people can write by hand."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from anabranch.errors import PlanError, Subject
from anabranch.planning.fields import Fields, is_number
from anabranch.planning.machine import Machine, Matrix
from anabranch.planning.profile import Overheads
from anabranch.planning.spark_file import read_spark_costs


def read_machine(text: str, name: str = "machine") -> Machine:
    """A machine from the text of a file; fields that planners do not use may stand in it, too.

    Example:
        >>> read_machine('{"sockets": 2, "cores_per_socket": 8}').cores
        16
        >>> read_machine('{"cores": 4}').cores
        4
    """
    file = Subject("machine", name)
    fields = Fields.of(text, file)
    if not fields.has("cores_per_socket") and not fields.has("cores"):
        raise PlanError(
            file, "sockets and cores_per_socket, or cores", str(fields.names()), "add them"
        )
    sockets = fields.whole("sockets", 1)
    return Machine(
        fields.text("name", name),
        sockets,
        _cores_per_socket(fields, sockets),
        fields.number("ghz", None, positive=True),
        fields.whole("cache_line_bytes", 64),
        _matrix(fields, "latency_ns", sockets),
        _matrix(fields, "bandwidth_mb_s", sockets, positive=True),
        fields.whole("nodes", 1),
        fields.number("network_us", 0.0),
        fields.number("network_mb_s", None, positive=True),
        fields.number("parallel_share", 1.0, positive=True),
        _overheads(fields),
        read_spark_costs(text, name),
    )


def _cores_per_socket(fields: Fields, sockets: int) -> int:
    if fields.has("cores_per_socket"):
        cores: int = fields.whole("cores_per_socket")
        return cores
    cores = fields.whole("cores")
    if cores % sockets:
        raise fields.refuse("cores", f"a multiple of {sockets} sockets", "give cores_per_socket")
    return cores // sockets


def _matrix(fields: Fields, field: str, sockets: int, positive: bool = False) -> Matrix:
    rows = fields.items(field, [])
    if rows and len(rows) != sockets:
        raise PlanError(
            fields.place(field),
            f"{sockets} rows, one per socket",
            f"{len(rows)} rows",
            "give a row per socket with a value per socket",
        )
    for number, row in enumerate(rows):
        where = fields.place(f"{field}[{number}]")
        if not isinstance(row, list) or len(row) != sockets:
            size = f"{len(row)}" if isinstance(row, list) else json.dumps(row)
            raise PlanError(where, f"{sockets} values, one per socket", size, "complete the row")
        for value in row:
            if not is_number(value, positive):
                least = "above 0" if positive else "of 0 or more"
                raise PlanError(where, f"numbers {least}", json.dumps(value), "measure again")
    return tuple(tuple(float(value) for value in row) for row in rows)


def _overheads(fields: Fields) -> dict[str, Overheads]:
    by_engine = fields.object("overheads")
    found: dict[str, Overheads] = {}
    for engine in by_engine.names() if by_engine else []:
        each = by_engine.object(engine) if by_engine else None
        if each is not None:
            found[engine] = Overheads(
                each.number("thread_switch", 0.0), each.number("replication", 0.0)
            )
    return found


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
