"""A page for each application, from the registry: a new one joins by itself.

Variants of one module, such as the queries of NEXMark, share a page.
"""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from griffe import Docstring, DocstringSectionKind
from markup import cell, code, table
from not_run import mark

from anabranch.apps import APPS, App
from anabranch.apps.parts.wanted import Wanted, input_options, what_goes_in
from anabranch.pictures.svg import flow_svg

FOLDER = "apps"
PICTURES = f"{FOLDER}/pictures"
FEW_ROWS = 100_000

INTRODUCTION = """# Applications

What the papers ran, and NEXMark. Each is one module to read as an example. It generates its own
data from a seed, at any size, and takes yours with `--input`. A row that cannot be read is
counted, kept in a sink of its own, and harms no other. Files are read line by line: blank lines
are passed over, and a quoted CSV field cannot go on in the next line.
"""


def application_pages() -> Iterator[tuple[str, str]]:
    """The files of all applications: path in the site, and text."""
    pages = by_page()
    rows = [
        (f"[{name}]({name}.md)", cell(apps[0].about), str(len(apps) - 1 or ""))
        for name, apps in sorted(pages.items())
    ]
    heads = ("application", "what it does", "variants")
    yield f"{FOLDER}/index.md", INTRODUCTION + "\n" + table(heads, rows) + "\n"
    for name, apps in pages.items():
        yield f"{FOLDER}/{name}.md", _page(apps)
    for app in APPS.values():
        yield f"{PICTURES}/{app.name}.svg", flow_svg(app.build().shape(), app.name)


def by_page() -> dict[str, list[App]]:
    """The applications that share a page, the plain one first; pages by name."""
    pages: dict[str, list[App]] = {}
    for app in APPS.values():
        pages.setdefault(app.place.replace("_", "-"), []).append(app)
    return {name: sorted(apps, key=lambda app: bool(app.given)) for name, apps in pages.items()}


def _page(apps: list[App]) -> str:
    plain, *variants = apps
    title, _, about = (inspect.getdoc(plain.module) or "").partition("\n")
    parts = [f"# {plain.name}", title, about.strip(), _picture(plain), *_sinks(plain)]
    if "input" in plain.parameters:
        parts += ["## What goes in", *_inputs(plain)]
    parts += ["## Run it", *_running(plain), "## Arguments", *_arguments(plain)]
    if variants:
        parts.append("## Variants")
        parts.append(f"`anabranch run {plain.name}` runs the one that its arguments choose.")
    for variant in variants:
        parts += [f"### {variant.name}", variant.about, _picture(variant)]
        if what_goes_in(variant.build()) != what_goes_in(plain.build()):
            parts += _inputs(variant)
    return "\n\n".join(part for part in parts if part) + "\n"


def _picture(app: App) -> str:
    place = f"pictures/{app.name}.svg"
    return f"[![The steps of {app.name}, from left to right]({place})]({place})"


def _sinks(app: App) -> Iterator[str]:
    sinks = [step for step in app.build().shape().steps if step.role == "sink"]
    rows = [(code(step.step), code(step.what.partition(" → ")[2])) for step in sinks]
    yield "What comes out, by sink:"
    yield table(("sink", "columns"), rows)


def _inputs(app: App) -> Iterator[str]:
    for each in what_goes_in(app.build()):
        yield f"Files for the source `{each.source}`: {each.form}" + (":" if each.columns else ".")
        if each.columns:
            yield _columns(each)


def _columns(wanted: Wanted) -> str:
    rows = [
        (code(each.name), code(each.kind), "yes" if each.required else "", cell(each.about))
        for each in wanted.columns
    ]
    noted = any(each.about for each in wanted.columns)
    heads = ("column", "type", "required", "what")
    return table(heads[: 3 + noted], [row[: 3 + noted] for row in rows])


def _running(app: App) -> Iterator[str]:
    lines = [f"anabranch run {app.name} --engine local --rows {FEW_ROWS}"]
    lines.append(f"anabranch run {app.name} --seconds 30 --dashboard")
    if "input" in app.parameters:
        options = input_options(what_goes_in(app.build()))
        lines.append(f"anabranch run {app.name} {options} --out results")
    lines.append(f"anabranch plan {app.name} --svg {app.name}.svg")
    yield mark("they take a while, and one reads files of yours") + "\n" + _shell(lines)
    said = inspect.getdoc(app.module.Summary) or ""
    examples = doctest.DocTestParser().get_examples(said)
    first = said.splitlines()[0].rstrip(".")
    yield (
        "The progress is shown while it runs. In the end it says what was found "
        f"({first[0].lower()}{first[1:]}), the rate, the plan, and why the plan was changed."
    )
    if examples:
        yield "What was found looks like this:"
        yield "```text\n" + examples[-1].want.rstrip() + "\n```"


def _shell(lines: list[str]) -> str:
    return "```sh\n" + "\n".join(lines) + "\n```"


def _arguments(app: App) -> Iterator[str]:
    said = _said_of_arguments(app.module.build)
    rows = [
        (code(name), cell(said.get(name, "")), code(_shown(parameter.default)))
        for name, parameter in app.parameters.items()
    ]
    yield "Given to `build` in Python, or on the command line by `--set NAME=VALUE`."
    yield table(("argument", "what", "default"), rows)


def _said_of_arguments(function: Any) -> Mapping[str, str]:
    """What the docstring of a function says of each argument."""
    sections = Docstring(inspect.getdoc(function) or "", parser="google").parse(warnings=False)
    found = (each for each in sections if each.kind is DocstringSectionKind.parameters)
    return {argument.name: argument.description for each in found for argument in each.value}


def _shown(default: Any) -> str:
    if isinstance(default, timedelta):
        return f"{default.total_seconds():g} s"
    return f"{default:_}" if type(default) is int else repr(default)
