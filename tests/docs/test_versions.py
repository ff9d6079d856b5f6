"""Packages that pages tell to load beside Spark are those that fit the Spark we are locked to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.docs.test_pages import WRITTEN
from tests.pages import REPOSITORY

JARS = Path(pyspark.__path__[0]) / "jars"
COORDINATE = re.compile(r"org\.apache\.(spark|hadoop):([\w.-]+):([\w.{}-]+)")


def version_in(jar: str) -> str:
    """What stands for `*` in the name of a jar that Spark brings."""
    (found,) = JARS.glob(jar)
    before, after = jar.split("*")
    return found.name.removeprefix(before).removesuffix(after)


def misfit(project: str, artifact: str, version: str) -> str | None:
    """What is wrong with a package, if anything is."""
    if project == "hadoop":
        wanted = version_in("hadoop-client-api-*.jar")
        return None if version == wanted else f"Hadoop is {wanted}"
    scala = version_in(f"spark-core_*-{pyspark.__version__}.jar")
    if not artifact.endswith(f"_{scala}"):
        return f"Scala is {scala}"
    fits = version in (pyspark.__version__, "{pyspark.__version__}")
    return None if fits else f"Spark is {pyspark.__version__}"


def named() -> Iterator[tuple[str, tuple[str, str, str]]]:
    """Every package that a page names."""
    for page in (*WRITTEN, REPOSITORY / "README.md"):
        for found in COORDINATE.finditer(page.read_text(encoding="utf-8")):
            yield str(page.relative_to(REPOSITORY)), (found[1], found[2], found[3])


@pytest.mark.parametrize(("page", "package"), list(named()))
def test_a_package_beside_spark_has_the_version_that_fits(page, package):
    assert misfit(*package) is None


def test_both_connectors_are_named_somewhere():
    assert {project for _, (project, _, _) in named()} == {"spark", "hadoop"}


@pytest.mark.parametrize(
    ("package", "why"),
    [
        (("spark", "spark-sql-kafka-0-10_2.13", "4.1.0"), "Spark is "),
        (("spark", "spark-sql-kafka-0-10_2.12", pyspark.__version__), "Scala is "),
        (("hadoop", "hadoop-aws", "3.3.4"), "Hadoop is "),
    ],
)
def test_a_package_of_another_version_is_noticed(package, why):
    assert (misfit(*package) or "").startswith(why)
