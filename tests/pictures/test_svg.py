"""Drawings as SVG: well-formed, told in words too, and names are never markup."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.events import Shape, StepShape, StreamShape
from anabranch.pictures.svg import curve, flow_svg, plan_svg
from tests.pictures.shapes import chain, cut, random_shape
from tests.sampling import some

SVG = "{http://www.w3.org/2000/svg}"
NASTY = '<b>&amp;"it\'s"</b><script>x</script>'


def texts(picture: str, kind: str) -> list[str]:
    """What is written in a picture, of one class."""
    found = ElementTree.fromstring(picture).iter(f"{SVG}text")
    return [each.text or "" for each in found if each.get("class") == kind]


def counted(picture: str, tag: str, kind: str) -> int:
    found = ElementTree.fromstring(picture).iter(SVG + tag)
    return sum(each.get("class", "").split()[:1] == [kind] for each in found)


def one_step(state: str, key: tuple[str, ...] = ()) -> str:
    return flow_svg(Shape((StepShape("step", "operator", state, key),)))


@pytest.mark.parametrize("seed", range(5))
def test_every_step_is_there_and_every_stream(seed):
    shape = random_shape(seed, 40)
    picture = plan_svg(shape, cut(shape, seed), {})
    assert sorted(texts(picture, "ab-name")) == sorted(step.step for step in shape.steps)
    assert counted(picture, "path", "ab-line") == len(shape.streams)


def test_names_that_are_markup_are_shown_and_not_run():
    shape = Shape(
        (
            StepShape(NASTY, "source", region=NASTY, what=NASTY),
            StepShape("out", "sink", NASTY, (NASTY,), region=NASTY),
        ),
        (StreamShape(NASTY, NASTY, "out"),),
    )
    picture = plan_svg(shape, {}, {}, title=NASTY)
    root = ElementTree.fromstring(picture)
    assert "<script" not in picture
    assert "<b>" not in picture
    assert root.get("aria-label") == NASTY
    assert root[0].text == NASTY
    assert NASTY[:10] in texts(picture, "ab-name")[0]
    assert texts(picture, "ab-port") == [NASTY]
    known = {"ab-stateless", "ab-partitioned", "ab-stateful", "ab-shared", "ab-end"}
    assert {each.get("class") for each in root.iter(f"{SVG}g")} <= known


@given(st.text(st.characters(codec=None), min_size=1, max_size=40))
@example("\x00\ud800\ufffe]]>")
@settings(max_examples=some(200))
def test_any_text_gives_a_file_that_can_be_read(name):
    picture = flow_svg(chain("in", f"step {name}", "out"), name)
    ElementTree.fromstring(picture.encode())


def test_those_who_hear_it_are_told_what_flows_where():
    shape = chain("words", "count", "out")
    root = ElementTree.fromstring(flow_svg(shape, "word count"))
    assert root.get("role") == "img"
    assert root[0].text == "word count"
    assert root[1].text == "words → count; count → out"


def test_state_is_shown_by_shape_and_in_words():
    cells = {s: counted(one_step(s), "rect", "ab-cell") for s in ("stateless", "stateful")}
    assert cells == {"stateless": 0, "stateful": 1}
    assert counted(one_step("partitioned", ("word",)), "rect", "ab-cell") > 1
    style, shared = one_step("shared").split("</style>")
    assert ".ab-shared .ab-step{stroke-dasharray" in style
    assert '<g class="ab-shared">' in shared
    assert texts(one_step("partitioned", ("word", "day")), "ab-detail") == ["by word, day"]
    assert texts(one_step("shared"), "ab-detail") == ["shared"]


def test_replicas_are_cards_and_a_number():
    shape = chain("in", "out")
    alone, two, many = (plan_svg(shape, {}, {"in": n}) for n in (1, 2, 40))
    assert [texts(p, "ab-count") for p in (alone, two, many)] == [[], ["×2"], ["×40"]]
    assert [counted(p, "rect", "ab-region") for p in (alone, two, many)] == [2, 3, 4]


def test_side_outputs_are_named():
    steps = (StepShape("parse", "operator"), StepShape("bad", "sink"), StepShape("out", "sink"))
    streams = (StreamShape("parse", "out", "out"), StreamShape("parse", "errors", "bad"))
    assert texts(flow_svg(Shape(steps, streams)), "ab-port") == ["errors"]


def test_it_can_be_read_on_light_and_on_dark_pages():
    picture = flow_svg(chain("in", "out"))
    light, dark = picture.split("@media(prefers-color-scheme:dark)")
    colours = [
        line.split(";")[0] for half in (light, dark) for line in half.split("--ab-page:")[1:2]
    ]
    assert colours == ["#ffffff", "#14181d"]


def test_several_in_one_page_do_not_meet():
    assert " id=" not in flow_svg(chain("in", "out"))


def test_the_same_flow_gives_the_same_text():
    assert flow_svg(random_shape(4, 50)) == flow_svg(random_shape(4, 50))


def test_a_curve_is_level_at_its_ends():
    assert curve([(0, 5), (20, 15), (30, 15)]) == "M0 5C10 5 10 15 20 15H30"
