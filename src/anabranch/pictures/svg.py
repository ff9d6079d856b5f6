"""Drawings as SVG: text that stands alone, readable on light and dark pages.

Classes and nothing else are named, all with a prefix, since notebooks put several pictures into one
page. What a step remembers is shown by its shape and in words; colour only repeats it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from xml.sax.saxutils import escape, quoteattr

from anabranch.events import Shape
from anabranch.pictures.boxes import CARD, Box
from anabranch.pictures.drawing import Drawing, Line, draw

_LIGHT = """
--ab-page:#ffffff;--ab-ink:#1c2530;--ab-soft:#566372;--ab-line:#7a8899;
--ab-region:#f4f6f9;--ab-rim:#b9c4d1;--ab-pipeline:#e6ebf2;--ab-step:#ffffff;
--ab-end:#566372;--ab-stateless:#2f6db3;--ab-partitioned:#1f8062;--ab-stateful:#b0521c;
--ab-shared:#7d4bab"""
_DARK = """
--ab-page:#14181d;--ab-ink:#e6ebf1;--ab-soft:#a3b0bf;--ab-line:#8594a5;
--ab-region:#1c2229;--ab-rim:#46525f;--ab-pipeline:#28313b;--ab-step:#181d23;
--ab-end:#a3b0bf;--ab-stateless:#6aa9ef;--ab-partitioned:#4fc39d;--ab-stateful:#ee9560;
--ab-shared:#bd92e8"""
STYLE = f"""
.ab-picture{{{_LIGHT};font-family:system-ui,-apple-system,"Segoe UI",sans-serif}}
@media(prefers-color-scheme:dark){{.ab-picture{{{_DARK}}}}}
.ab-page{{fill:var(--ab-page)}}
.ab-region{{fill:var(--ab-region);stroke:var(--ab-rim)}}
.ab-pipeline{{fill:var(--ab-pipeline)}}
.ab-step{{fill:var(--ab-step);stroke:var(--ab-mark);stroke-width:1.5}}
.ab-shared .ab-step{{stroke-dasharray:5 3}}
.ab-cell{{fill:var(--ab-mark)}}
.ab-end{{--ab-mark:var(--ab-end)}}
.ab-stateless{{--ab-mark:var(--ab-stateless)}}
.ab-partitioned{{--ab-mark:var(--ab-partitioned)}}
.ab-stateful{{--ab-mark:var(--ab-stateful)}}
.ab-shared{{--ab-mark:var(--ab-shared)}}
.ab-line{{fill:none;stroke:var(--ab-line);stroke-width:1.5}}
.ab-side{{stroke-dasharray:4 3}}
.ab-tip{{fill:var(--ab-line)}}
.ab-name{{fill:var(--ab-ink);font-size:12px;text-anchor:middle}}
.ab-detail{{fill:var(--ab-soft);font-size:10px;text-anchor:middle}}
.ab-title{{fill:var(--ab-soft);font-size:11px;font-weight:600}}
.ab-port{{fill:var(--ab-soft);font-size:10px;stroke:var(--ab-page);stroke-width:4px;paint-order:stroke;
text-anchor:middle}}
.ab-badge{{fill:var(--ab-ink)}}
.ab-count{{fill:var(--ab-page);font-size:11px;font-weight:600;text-anchor:middle}}
""".replace(";\n", ";").replace("{\n", "{")

NEVER_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
STATES = ("stateless", "partitioned", "stateful", "shared")
ENDS = ("source", "sink")
ROUNDED, STEP_ROUNDED = 8.0, 6.0
BADGE_HEIGHT = 16.0
TIP = 7.0


def flow_svg(shape: Shape, title: str = "flow") -> str:
    """The picture of a flow."""
    return svg(draw(shape), title, _told(shape))


def plan_svg(
    shape: Shape,
    pipelines: Mapping[str, Sequence[Sequence[str]]],
    replicas: Mapping[str, int],
    title: str = "plan",
) -> str:
    """The picture of how a plan runs a flow; the shape's steps know their regions."""
    return svg(draw(shape, pipelines, replicas), title, _told(shape))


def svg(drawing: Drawing, title: str, told: Mapping[str, str] | None = None) -> str:
    """A drawing as SVG.

    Args:
        drawing: Where everything lies.
        title: What it shows, for those who hear it, too.
        told: By step, what else is told where a pointer rests on it.

    Example:
        >>> svg(Drawing(20, 10), "nothing & more").splitlines()[1:3]
        ['<title>nothing &amp; more</title>', '<desc></desc>']
    """
    width, height = _number(drawing.width), _number(drawing.height)
    streams = "; ".join(_in_words(line) for line in drawing.lines)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="ab-picture" role="img" '
        f"aria-label={quoteattr(_clean(title))} "
        f'style="max-width:100%;height:auto" '
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<title>{_text(title)}</title>",
        f"<desc>{_text(streams)}</desc>",
        f"<style>{STYLE}</style>",
        f'<rect class="ab-page" width="{width}" height="{height}" rx="{ROUNDED:g}"/>',
    ]
    for box in drawing.boxes:
        parts += _box(box, told or {})
    # Above the boxes: lines cross the rims of those that their steps lie in.
    for line in drawing.lines:
        parts += _line(line)
    for box in drawing.boxes:
        parts += _badge(box)
    return "\n".join([*parts, "</svg>", ""])


def curve(points: Sequence[tuple[float, float]]) -> str:
    """The `d` of a path through points, level at each.

    Example:
        >>> curve([(0, 0), (10, 0), (30, 40)])
        'M0 0H10C20 0 20 40 30 40'
    """
    path = "M" + " ".join(map(_number, points[0]))
    for (x, y), (right, down) in pairwise(points):
        middle = _number((x + right) / 2)
        end = f"{_number(right)} {_number(down)}"
        path += (
            f"H{_number(right)}"
            if y == down
            else f"C{middle} {_number(y)} {middle} {_number(down)} {end}"
        )
    return path


def _box(box: Box, told: Mapping[str, str]) -> Iterator[str]:
    if box.kind == "step":
        yield from _step(box, told)
        return
    rounded = ROUNDED if box.kind == "region" else STEP_ROUNDED
    for card in range(box.cards if box.kind == "region" else 0, 0, -1):
        yield _rect("ab-region", box, rounded, card * CARD)
    holds_one = len(box.inside) == 1 and box.inside[0].width == box.width
    if not holds_one:
        yield _rect(f"ab-{box.kind}", box, rounded)
    if box.label:
        x, y = box.x + rounded, box.y + 18
        yield f'<text class="ab-title" x="{_number(x)}" y="{_number(y)}">{_text(box.label)}</text>'
    for inner in box.inside:
        yield from _box(inner, told)


def _step(box: Box, told: Mapping[str, str]) -> Iterator[str]:
    what = told.get(box.name, "")
    yield f'<g class="ab-{box.state if box.state in STATES else "end"}">'
    yield f"<title>{_text(': '.join(filter(None, (box.name, box.detail, what))))}</title>"
    yield _rect("ab-step", box, box.height / 2 if box.role in ENDS else STEP_ROUNDED)
    yield from _cells(box)
    x = _number(box.x + box.width / 2)
    yield f'<text class="ab-name" x="{x}" y="{_number(box.y + 18)}">{_text(box.label)}</text>'
    yield f'<text class="ab-detail" x="{x}" y="{_number(box.y + 32)}">{_text(box.detail)}</text>'
    yield "</g>"


def _cells(box: Box) -> Iterator[str]:
    """State as cells at the left edge: one for all, or one for each of several buckets."""
    count = {"partitioned": 3, "shared": 3, "stateful": 1}.get(box.state, 0)
    for cell in range(count):
        height = (box.height - 12 - 3 * (count - 1)) / count
        y = box.y + 6 + cell * (height + 3)
        yield (
            f'<rect class="ab-cell" x="{_number(box.x + 5)}" y="{_number(y)}" width="4" '
            f'height="{_number(height)}" rx="1"/>'
        )


def _line(line: Line) -> Iterator[str]:
    side = " ab-side" if line.label else ""
    end = line.points[-1]
    yield f'<path class="ab-line{side}" d="{curve(line.points)}"/>'
    back, up, down = _number(end[0] - TIP), _number(end[1] - TIP / 2), _number(end[1] + TIP / 2)
    tip = f"M{back} {up}L{_number(end[0])} {_number(end[1])}L{back} {down}Z"
    yield f'<path class="ab-tip" d="{tip}"/>'
    if line.label:
        x, y = _middle(line)
        place = f'x="{_number(x)}" y="{_number(y + 3)}"'
        yield f'<text class="ab-port" {place}>{_text(line.label)}</text>'


def _middle(line: Line) -> tuple[float, float]:
    """Where the name of a port goes: on its first way up or down, which lies between columns."""
    stretches = list(pairwise(line.points))
    (x, y), (right, down) = next((s for s in stretches if s[0][1] != s[1][1]), stretches[0])
    return (x + right) / 2, (y + down) / 2


def _badge(box: Box) -> Iterator[str]:
    """How many replicas there are, at the corner."""
    if box.replicas < 2:
        return
    text = f"×{box.replicas}"
    width = 10.0 + 7 * len(text)
    x, y = box.right - width + 10, box.y - BADGE_HEIGHT / 2
    yield (
        f'<rect class="ab-badge" x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" '
        f'height="{_number(BADGE_HEIGHT)}" rx="{_number(BADGE_HEIGHT / 2)}"/>'
    )
    yield (
        f'<text class="ab-count" x="{_number(x + width / 2)}" y="{_number(y + 12)}">{text}</text>'
    )


def _rect(kind: str, box: Box, rounded: float, out: float = 0.0) -> str:
    return (
        f'<rect class="{kind}" x="{_number(box.x + out)}" y="{_number(box.y - out)}" '
        f'width="{_number(box.width)}" height="{_number(box.height)}" rx="{_number(rounded)}"/>'
    )


def _told(shape: Shape) -> dict[str, str]:
    return {step.step: step.what for step in shape.steps}


def _in_words(line: Line) -> str:
    port = f" ({line.label})" if line.label else ""
    return f"{line.producer} → {line.consumer}{port}"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _clean(text: str) -> str:
    """Without what no XML file may hold, escaped or not."""
    return NEVER_IN_XML.sub("�", text)


def _text(text: str) -> str:
    return escape(_clean(text))
