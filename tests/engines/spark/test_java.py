import os
import shlex
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from anabranch.engines.spark import java as java_module
from anabranch.engines.spark.java import Java, ensure_java, installed_javas, probe, wrapped
from anabranch.errors import EngineError


def fake_home(folder: Path, version: str) -> Path:
    """A Java home whose `java` tells its properties, or echoes any other arguments."""
    home = folder / f"java {version}"
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    java = home / "bin" / "java"
    java.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = -XshowSettings:properties ]; then\n'
        f"  echo '    java.home = {home}' >&2\n"
        f"  echo '    java.version = {version}' >&2\n"
        "else\n"
        "  printf '%s\\n' \"$@\"\n"
        "fi\n"
    )
    java.chmod(0o755)
    return home


@pytest.fixture
def no_wheel(monkeypatch):
    monkeypatch.setattr(java_module, "wheel_home", lambda: None)


def surroundings(tmp_path: Path, home: Path | None = None, on_path: Path | None = None):
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": ""}
    if home is not None:
        environment["JAVA_HOME"] = str(home)
    if on_path is not None:
        environment["PATH"] = str(on_path / "bin")
    return environment


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("26-ea", 26)]
)
def test_a_java_tells_its_home_and_major_version(tmp_path, version, major):
    home = fake_home(tmp_path, version)
    assert probe(home / "bin" / "java") == Java(home, major, "installed")


def test_what_does_not_answer_as_a_java_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(java_module, "PROBE_TIMEOUT_S", 0.2)
    for name, script in [
        ("fails", "exit 1"),
        ("mute", "exit 0"),
        ("hangs", "exec tail -f /dev/null"),
    ]:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
        assert probe(tmp_path / name) is None, name
    assert probe(tmp_path / "absent") is None


def test_java_home_comes_before_the_path(tmp_path):
    named, on_path = fake_home(tmp_path, "17.0.1"), fake_home(tmp_path, "21.0.2")
    assert [java.home for java in installed_javas(surroundings(tmp_path, named, on_path))] == [
        named,
        on_path,
    ]
    assert ensure_java(surroundings(tmp_path, named, on_path)).home == named


@pytest.mark.usefixtures("no_wheel")
def test_a_java_too_old_is_passed_over(tmp_path):
    old, new = fake_home(tmp_path, "11.0.2"), fake_home(tmp_path, "17.0.1")
    assert ensure_java(surroundings(tmp_path, old, new)) == Java(new, 17, "installed")


def test_the_wheel_serves_where_no_java_is_new_enough(tmp_path, monkeypatch):
    wheel = fake_home(tmp_path, "25.0.2")
    monkeypatch.setattr(java_module, "wheel_home", lambda: wheel)
    environment = surroundings(tmp_path, fake_home(tmp_path, "1.8.0_402"))
    assert ensure_java(environment) == Java(wheel, 25, "wheel")


@pytest.mark.usefixtures("no_wheel")
def test_without_any_java_the_error_gives_the_commands(tmp_path):
    old = fake_home(tmp_path, "11.0.2")
    with pytest.raises(EngineError) as none:
        ensure_java(surroundings(tmp_path))
    assert none.value.got == "none"
    assert "pip install 'anabranch[java]'" in none.value.remedy
    assert "JDK ≥ 17" in none.value.remedy
    with pytest.raises(EngineError, match=f"got Java 11 in {old}"):
        ensure_java(surroundings(tmp_path, old))


def flags_that_arrive(home: str, *flags: str) -> list[str]:
    java = Path(home) / "bin" / "java"
    ran = subprocess.run([java, *flags], capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()


def test_the_wrapper_drops_what_java_lacks_and_passes_on_all_else(tmp_path):
    environment = surroundings(tmp_path, fake_home(tmp_path, "17.0.1"))
    ensure_java(environment)
    kept = ["-Xmx1g", "--add-modules=java.sql", "--add-modules", "java.xml", "a b", "", "$x", "*"]
    dropped = ["--add-modules=jdk.incubator.vector", "--add-modules", "jdk.incubator.vector"]
    assert flags_that_arrive(environment["JAVA_HOME"], *dropped, *kept, *dropped) == kept


def test_a_package_is_opened_as_long_as_java_has_it(tmp_path):
    flag = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    arrived = {}
    for version in ("17.0.1", "25.0.2"):
        environment = surroundings(tmp_path, fake_home(tmp_path, version))
        ensure_java(environment)
        arrived[version] = flags_that_arrive(environment["JAVA_HOME"], flag, "end")
    assert arrived == {"17.0.1": [flag, "end"], "25.0.2": ["end"]}


def test_everything_else_in_the_home_is_the_real_one(tmp_path):
    home = fake_home(tmp_path, "17.0.1")
    (home / "bin" / "keytool").touch()
    made = wrapped(Java(home, 17, "installed"), surroundings(tmp_path))
    assert (made / "lib").resolve() == home / "lib"
    assert (made / "bin" / "keytool").resolve() == home / "bin" / "keytool"


def test_a_second_start_finds_the_first_ones_home_and_still_knows_the_wheel(tmp_path, monkeypatch):
    wheel = fake_home(tmp_path, "25.0.2")
    monkeypatch.setattr(java_module, "wheel_home", lambda: wheel)
    environment = surroundings(tmp_path)
    first, made = ensure_java(environment), environment["JAVA_HOME"]
    assert ensure_java(environment) == first == Java(wheel, 25, "wheel")
    assert environment["JAVA_HOME"] == made


def test_starts_at_the_same_time_agree_on_one_whole_home(tmp_path, monkeypatch):
    java = Java(fake_home(tmp_path, "17.0.1"), 17, "installed")
    # All have looked before anyone builds, so all of them race to the rename.
    together, build = Barrier(4, timeout=60), java_module.build
    monkeypatch.setattr(java_module, "build", lambda *of: (together.wait(), build(*of))[1])
    with ThreadPoolExecutor(4) as pool:
        homes = set(pool.map(lambda _: wrapped(java, surroundings(tmp_path)), range(4)))
    (home,) = homes
    assert flags_that_arrive(str(home), "a") == ["a"]
    assert os.listdir(home.parent) == [home.name]


def test_without_a_cache_that_can_be_written_the_home_is_temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "cache").write_text("not a folder")
    java = Java(fake_home(tmp_path, "17.0.1"), 17, "installed")
    home = wrapped(java, surroundings(tmp_path))
    assert home.is_relative_to(tmp_path / "tmp")
    assert flags_that_arrive(str(home), "a") == ["a"]
    assert shlex.quote(str(java.home / "bin" / "java")) in (home / "bin" / "java").read_text()
