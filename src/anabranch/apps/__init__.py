"""Applications, one per file, each to be read as an example.

A module owes `build(...) -> Flow`, whose arguments are its configuration, all by keyword and all
with defaults. Where it takes `input` (the user's own files), `rows` (how much to generate, None for
an endless stream) and `seed`, the command line offers them. `Summary` says what was found, from
what each sink gets (`kit/summary.py`). The sink of the main result is called `out`. One that has
variants also has `variant(...)`, which gives what describes the one that an argument chooses; and
where the defaults of others depend on that, `usual(...)`, which gives those.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any

from anabranch.apps.kit.summary import AppSummary
from anabranch.errors import Subject, UnknownNameError, nearest
from anabranch.flow import Flow


@dataclass(frozen=True)
class App:
    """An application by name; its module is imported when it is first needed.

    Attributes:
        name: What users call it.
        place: The module, below this package.
        given: Arguments of `build` that make this variant of what the module holds.
    """

    name: str
    place: str
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def module(self) -> ModuleType:
        """The module that holds it."""
        return import_module(f"{__name__}.{self.place}")

    @property
    def about(self) -> str:
        """What it does, in a line."""
        return self.description.splitlines()[0]

    @property
    def description(self) -> str:
        """What it does, and where it differs from what it follows; of a variant what is its own."""
        what = self.module.variant(**self.given) if self.given else self.module
        return inspect.getdoc(what) or ""

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """What `build` can be given, with the defaults of this variant."""
        known = inspect.signature(self.module.build).parameters
        usual = getattr(self.module, "usual", dict)(**self.given)
        return {
            name: each.replace(default=usual.get(name, each.default))
            for name, each in known.items()
            if name not in self.given
        }

    def build(self, **config: Any) -> Flow:
        """The flow."""
        flow: Flow = self.module.build(**{**config, **self.given})
        return flow

    def summary(self) -> AppSummary:
        """A summary of what its sinks get, which have got nothing yet."""
        summary: AppSummary = self.module.Summary()
        return summary


def _named(name: str, **given: Any) -> App:
    module = name if not given else name.partition("-")[0]
    return App(name, module.replace("-", "_"), given)


NEXMARK = (*range(10), 11, 12, 13, 17, 18, 19)
"""The numbers of that benchmark's queries, each an application of its own too."""

APPS: dict[str, App] = {
    app.name: app
    for app in (
        _named("word-count"),
        _named("synthetic-word-count"),
        _named("finance"),
        _named("micro"),
        _named("micro-two-regions", shape="two-regions"),
        _named("micro-tree", shape="tree"),
        _named("micro-reverse-tree", shape="reverse-tree"),
        _named("micro-selectivity", shape="selectivity"),
        _named("micro-joker-chain", shape="joker-chain"),
        _named("micro-linear", shape="linear"),
        _named("micro-diamond", shape="diamond"),
        _named("micro-star", shape="star"),
        _named("log-watch"),
        _named("network-monitoring"),
        _named("band-join"),
        _named("fraud-detection"),
        _named("spike-detection"),
        _named("linear-road"),
        _named("hashtag-sequences"),
        _named("sentiment"),
        _named("nexmark"),
        *(_named(f"nexmark-q{number}", query=f"q{number}") for number in NEXMARK),
    )
}


def app(name: str) -> App:
    """The application of a name; one of nearly that name is offered where there is none.

    Example:
        >>> app("word-count").build(text="to be")
        Flow 'word-count': lines → split → count.combine → count → out
    """
    if name in APPS:
        return APPS[name]
    look = "see `anabranch apps`, or give your own flow as module:flow or file.py:flow"
    raise UnknownNameError(
        Subject("application", name),
        "an application",
        repr(name),
        f"{nearest(name, APPS, '')} {look}".strip(),
    )
