"""Scenarios as files: JSON that people write by hand."""

from __future__ import annotations

from dataclasses import asdict

from anabranch.engines.simulator.scenario import SWITCHES, Scenario
from anabranch.errors import Subject, nearest
from anabranch.planning.documents import Amount, as_document, parsed, refused, shown


def read_scenario(text: str, name: str = "scenario") -> Scenario:
    """A scenario from the text of a file; whatever is left out does not happen.

    Args:
        text: JSON.
        name: What to call the file in errors.

    Example:
        >>> text = '{"loads": [{"points": [[0, 1000], [10, 5000]]}], "switch": "joker"}'
        >>> scenario = read_scenario(text)
        >>> scenario.load("lines").rate(12.0), scenario.switch.dip_s
        (5000.0, 3.0)
    """
    file = Subject("scenario", name)
    content = parsed(text, file)
    skew, switch = content.get("skew"), content.get("switch")
    for operator, exponent in skew.items() if isinstance(skew, dict) else ():
        as_document(exponent, file, Amount, f".skew.{operator}")
    if isinstance(switch, str):
        if switch not in SWITCHES:
            expected, remedy = f"one of {list(SWITCHES)}", nearest(switch, SWITCHES)
            raise refused(file, ".switch", expected, shown(switch), remedy)
        content["switch"] = asdict(SWITCHES[switch])
    return as_document(content, file, Scenario)
