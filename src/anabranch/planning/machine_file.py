"""Machines as files: JSON that `anabranch calibrate` writes and people can write by hand."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from anabranch.errors import PlanError, Subject
from anabranch.planning.documents import Count, as_document, parsed, refused
from anabranch.planning.machine import Machine
from anabranch.planning.profile import Overheads
from anabranch.planning.spark_file import spark_costs


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
