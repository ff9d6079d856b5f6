"""Policies by name; each is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from anabranch.adapt.policy import Policy
from anabranch.errors import unknown

NONE = "none"
DEFAULT = "auto"
POLICIES = (
    "auto",
    "organic",
    "stepwise",
    "threshold",
    "stela",
    "ds2",
    "stretch",
    "balance",
)
"""Each is a module of `policies` with a class of its name, like `auto.Auto`."""


def policy(name: str) -> Policy[Any]:
    """The policy of a name, with its usual parameters."""
    if name not in POLICIES:
        raise unknown("policy", name, [*POLICIES, NONE])
    module = import_module(f"anabranch.adapt.policies.{name}")
    made: Policy[Any] = getattr(module, name.capitalize())()
    return made
