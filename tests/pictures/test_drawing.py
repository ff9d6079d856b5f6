"""Where boxes and lines lie: nothing overlaps, everything goes from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.events import Shape, StepShape, StreamShape
from anabranch.pictures.boxes import Box
from anabranch.pictures.drawing import Drawing, draw
from tests.pictures.shapes import chain, cut, random_shape, without_regions
from tests.sampling import some

SEEDS = st.integers(0, 10_000)
SIZES = st.integers(1, 40)


def drawn(seed: int, size: int, regions: bool = True) -> tuple[Shape, Drawing]:
    shape = random_shape(seed, size)
    if regions:
        return shape, draw(shape, cut(shape, seed), {step.region: 3 for step in shape.steps})
    return shape, draw(without_regions(shape))


def overlap(one: Box, other: Box) -> bool:
    return (
        one.x < other.right
        and other.x < one.right
        and one.y < other.bottom
        and other.y < one.bottom
    )


def levels(boxes: Sequence[Box]) -> list[Sequence[Box]]:
    """All lists of boxes that lie in one box."""
    return [boxes, *(inner for box in boxes for inner in levels(box.inside) if inner)]


@given(SEEDS, SIZES, st.booleans())
@settings(max_examples=some(60))
def test_boxes_do_not_overlap(seed, size, regions):
    _, drawing = drawn(seed, size, regions)
    for beside in levels(drawing.boxes):
        assert not [pair for pair in combinations(beside, 2) if overlap(*pair)]


@given(SEEDS, SIZES)
@settings(max_examples=some(60))
def test_every_step_lies_in_its_pipeline_in_its_region(seed, size):
    shape, drawing = drawn(seed, size)
    pipelines = cut(shape, seed)
    assert {box.name for box in drawing.boxes} == pipelines.keys()
    for region in drawing.boxes:
        assert region.kind == "region"
        assert {box.kind for box in region.inside} == {"pipeline"}
        assert [[s.name for s in p.inside] for p in region.inside] == pipelines[region.name]
        for outer in region.walk():
            for box in outer.inside:
                assert outer.x <= box.x < box.right <= outer.right
                assert outer.y <= box.y < box.bottom <= outer.bottom


@given(SEEDS, SIZES, st.booleans())
@settings(max_examples=some(60))
def test_lines_go_from_left_to_right_from_edge_to_edge(seed, size, regions):
    shape, drawing = drawn(seed, size, regions)
    steps = drawing.steps()
    told = [(line.producer, line.port, line.consumer) for line in drawing.lines]
    assert told == [(s.producer, s.port, s.consumer) for s in shape.streams]
    for line in drawing.lines:
        producer, consumer = steps[line.producer], steps[line.consumer]
        assert producer.right < consumer.x
        xs = [x for x, _ in line.points]
        assert (xs[0], xs[-1]) == (producer.right, consumer.x)
        assert xs == sorted(xs)
        assert producer.y < line.points[0][1] < producer.bottom
        assert consumer.y < line.points[-1][1] < consumer.bottom


@given(SEEDS, SIZES, st.booleans())
@settings(max_examples=some(60))
def test_lines_run_around_the_boxes_of_others(seed, size, regions):
    _, drawing = drawn(seed, size, regions)
    home = {step.name: box for box in drawing.boxes for step in box.walk()}
    for line in drawing.lines:
        own = (home[line.producer], home[line.consumer])
        for (x, y), (right, down) in pairwise(line.points):
            top = min(y, down)
            reach = Box("", "step", x, top, right - x, abs(down - y) + 0.1, "")
            assert not [box.name for box in drawing.boxes if box not in own and overlap(box, reach)]


@given(SEEDS, SIZES, st.booleans())
@settings(max_examples=some(60))
def test_sources_are_left_sinks_are_right_and_all_is_on_the_page(seed, size, regions):
    _, drawing = drawn(seed, size, regions)
    operators = [box for box in drawing.boxes if box.role == "operator"]
    for box in operators:
        assert all(box.x > b.right for b in drawing.boxes if b.role == "source")
        assert all(box.right < b.x for b in drawing.boxes if b.role == "sink")
    for box in drawing.boxes:
        assert 0 < box.x < box.right < drawing.width
        assert 0 < box.y < box.bottom < drawing.height
    for line in drawing.lines:
        assert all(0 < y < drawing.height for _, y in line.points)


def test_the_same_shape_gives_the_same_drawing():
    assert drawn(7, 60) == drawn(7, 60)


def test_a_chain_is_level_even_where_side_outputs_leave_it():
    shape = chain("a", "b", "c", "d")
    bad = StepShape("bad", "sink", region="bad")
    streams = (*shape.streams, StreamShape("b", "errors", "bad"))
    drawing = draw(replace(shape, steps=(*shape.steps, bad), streams=streams))
    heights = {y for line in drawing.lines if not line.label for _, y in line.points}
    assert len(heights) == 1
    assert [line.label for line in drawing.lines] == ["", "", "", "errors"]


def test_a_line_that_goes_far_bends_no_more_than_it_must():
    shape = chain("a", "b", "c", "d", "e")
    beside = StepShape("stored", "sink", region="stored")
    streams = (*shape.streams, StreamShape("a", "out", "stored"))
    drawing = draw(replace(shape, steps=(*shape.steps, beside), streams=streams))
    assert len({y for _, y in drawing.lines[-1].points}) == 2


def test_lines_into_one_step_do_not_cross_in_front_of_it():
    steps = tuple(StepShape(name, "source", region=name) for name in "abc")
    streams = tuple(StreamShape(name, "out", "joined") for name in "cab")
    drawing = draw(Shape((*steps, StepShape("joined", "sink", region="joined")), streams))
    ends = sorted((line.points[0][1], line.points[-1][1]) for line in drawing.lines)
    assert [end for _, end in ends] == sorted({end for _, end in ends})


def test_another_number_of_replicas_moves_nothing():
    shape = random_shape(3, 30)
    many = draw(shape, None, {step.region: 12 for step in shape.steps})
    few = draw(shape)
    assert {box.replicas for box in many.steps().values()} == {12}
    assert (many.width, many.height, many.lines) == (few.width, few.height, few.lines)
    assert [(b.x, b.y) for b in many.boxes] == [(b.x, b.y) for b in few.boxes]


def test_a_long_name_is_shortened_where_it_is_written_only():
    name = "a-step-with-a-name-that-is-far-too-long-for-any-box"
    box = draw(chain("in", name, "out")).steps()[name]
    assert (box.label[0], box.label[-1]) == ("a", "x")
    assert len(box.label) < 30
    assert box.width < 220


def test_a_step_that_no_pipeline_names_is_drawn_all_the_same():
    (region,) = draw(Shape((StepShape("a", "operator", region="r"),)), {"r": [["b"]]}).boxes
    assert [[step.name for step in pipeline.inside] for pipeline in region.inside] == [["a"]]


@pytest.mark.parametrize("streams", [[("a", "b"), ("b", "a")], [("a", "a")], [("a", "nowhere")]])
def test_what_is_no_flow_is_drawn_as_well_as_it_can_be(streams):
    steps = (StepShape("a", "operator", region="a"), StepShape("b", "operator", region="b"))
    drawing = draw(Shape(steps, tuple(StreamShape(p, "out", c) for p, c in streams)))
    assert not overlap(*drawing.boxes)


def test_nothing_is_an_empty_page():
    assert draw(Shape()).boxes == ()


def test_two_hundred_operators_are_drawn_in_a_moment():
    shape = random_shape(1, 200)
    spent = []
    for _ in range(3):
        began = process_time()
        draw(shape, cut(shape, 1))
        spent.append(process_time() - began)
    assert min(spent) < 0.3
