"""What a flow looks like: its graph as a value, with the regions that plans are made of."""

from __future__ import annotations

from dataclasses import replace

from anabranch.events import Shape
from anabranch.flow import Flow
from anabranch.planning.regions import regions


def shape_of(flow: Flow) -> Shape:
    """The shape of a flow, its steps told which region is theirs.

    Example:
        >>> from anabranch.apps import word_count
        >>> [(s.step, s.region) for s in shape_of(word_count.build()).steps]
        [('lines', 'lines'), ('split', 'split'), ('count.combine', 'split'), \
('count', 'count'), ('out', 'out')]
    """
    homes = {step: region for region in regions(flow) for step in region.steps}
    shape = flow.shape()
    steps = (
        replace(s, region=homes[s.step].name, replicable=homes[s.step].replicable)
        for s in shape.steps
    )
    return replace(shape, steps=tuple(steps))
