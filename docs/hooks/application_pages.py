"""A page for each application, from the registry: a new one joins by itself.

Variants of one module, such as the queries of NEXMark, share a page.
"""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator

from markup import cell, code, table
from not_run import mark

from anabranch.apps import APPS, App
from anabranch.apps.kit.columns import SourceColumns, input_options, what_goes_in
from anabranch.cli.listing import Setting, settings_of, what_comes_out
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
    parts = [f"# {plain.name}", plain.description, _picture(plain), *_sinks(plain)]
    if "input" in plain.parameters:
        parts += ["## What goes in", *_inputs(plain)]
    parts += ["## Run it", *_running(plain), "## Arguments", *_arguments(plain)]
    if variants:
        parts.append("## Variants")
        parts.append(f"`anabranch run {plain.name}` runs the one that its arguments choose.")
    for variant in variants:
        parts += [f"### {variant.name}", variant.description, _picture(variant)]
        if what_comes_out(variant.build()) != what_comes_out(plain.build()):
            parts += _sinks(variant)
        if what_goes_in(variant.build()) != what_goes_in(plain.build()):
            parts += _inputs(variant)
        if own := [each for each in settings_of(variant) if each not in settings_of(plain)]:
            parts += ["Its defaults differ in:", _settings(own)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _picture(app: App) -> str:
    place = f"pictures/{app.name}.svg"
    return f"[![The steps of {app.name}, from left to right]({place})]({place})"


def _sinks(app: App) -> Iterator[str]:
    written = what_comes_out(app.build())
    rows = [
        (
            code(each.sink),
            ", ".join(code(f"{column.name}: {column.kind}") for column in each.columns),
            each.note,
        )
        for each in written
    ]
    noted = any(each.note for each in written)
    yield "What comes out, by sink:"
    yield table(
        ("sink", "columns", "which rows count")[: 2 + noted], [r[: 2 + noted] for r in rows]
    )


def _inputs(app: App) -> Iterator[str]:
    for each in what_goes_in(app.build()):
        yield f"Files for the source `{each.source}`: {each.form}" + (":" if each.columns else ".")
        if each.columns:
            yield _columns(each)


def _columns(wanted: SourceColumns) -> str:
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
    yield "Given to `build` in Python, or on the command line by `--set NAME=VALUE`."
    yield _settings(settings_of(app))


def _settings(settings: list[Setting]) -> str:
    rows = [
        (code(each.name), cell(each.about), code(each.default) if each.default else "")
        for each in settings
    ]
    return table(("argument", "what", "default"), rows)
