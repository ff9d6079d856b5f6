from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow import fs

from anabranch.engines.checkpoint.storage import LocalStorage, RemoteStorage, Storage
from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.operators.aggregates.functions import count
from anabranch.operators.aggregates.windows import Window, tumbling


@pytest.fixture(params=["local", "remote"])
def storage(request, tmp_path) -> Storage:
    """The directory `tmp_path/cp`, once by the operating system and once by pyarrow alone."""
    if request.param == "local":
        return LocalStorage(str(tmp_path / "cp"))
    inside = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    return RemoteStorage("test://cp", inside, "cp")


@pytest.fixture
def folder(tmp_path) -> Path:
    """Where `storage` keeps its files."""
    return tmp_path / "cp"


@pytest.fixture
def visits() -> Callable[..., Flow]:
    return build_visits


def build_visits(
    name: str = "visits",
    *,
    buckets: int = 16,
    order: str = "total",
    window: Window | None = None,
    key: str = "user",
    step: str = "count",
    extra: bool = False,
    lateness: int = 0,
) -> Flow:
    flow = Flow(name, buckets=buckets, order=order)
    rows = memory([{"user": "ann", "page": "x", "ts": 1}])
    stream = flow.source("clicks", rows, time="ts", lateness=lateness)
    if extra:
        stream = stream.filter("some", lambda batch: [True])
    stream.aggregate(step, key=key, window=window or tumbling(60), combine=False, n=count()).sink(
        "out", collect()
    )
    return flow
