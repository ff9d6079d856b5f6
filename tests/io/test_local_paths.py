"""Addresses of other file systems are refused, wherever data is read or written."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

import anabranch as ab
from anabranch.cli import cli
from anabranch.engines.checkpoint.storage import absolute, storage_at
from anabranch.errors import AnabranchError, SinkError, SourceError, StateError
from anabranch.io.local_paths import local_path, remote_scheme
from anabranch.io.reading_back import read_back

ELSEWHERE = ["s3://bucket/out", "hdfs:///books/*.txt", "abfss://box@host/out", "HTTPS://host/x.csv"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("address", [*ELSEWHERE, Path("s3://bucket/out")])
@pytest.mark.parametrize(
    ("takes", "error"),
    [
        (ab.files, SourceError),
        (ab.parquet, SinkError),
        (ab.csv, SinkError),
        (ab.jsonl, SinkError),
        (read_back, SinkError),
    ],
)
def test_sources_and_sinks_refuse_addresses_of_other_file_systems(takes, error, address):
    with pytest.raises(error, match="a local path, or a file: address") as caught:
        takes(address)
    assert str(address).partition("@")[2] in caught.value.subject.name
    assert "give that path" in caught.value.remedy
    assert os.listdir() == []


def test_one_of_several_paths_is_enough_to_refuse_them_all():
    with pytest.raises(SourceError, match="hdfs"):
        ab.files(["books.txt", "hdfs:///more.txt"])


@pytest.mark.parametrize(
    "options",
    [
        ["run", "word-count", "--engine", "local", "--rows", "10", "--out"],
        ["run", "word-count", "--engine", "local", "--rows", "10", "--journal"],
        ["run", "word-count", "--engine", "local", "--input"],
        ["data", "word-count", "--rows", "1", "--out"],
        ["profile", "word-count", "--out"],
        ["tune", "word-count", "--engine", "local", "--out"],
        ["tune", "word-count", "--engine", "local", "--report"],
        ["plan", "word-count", "--save"],
        ["plan", "word-count", "--svg"],
        ["reproduce", "joker", "--quick", "--out"],
    ],
    ids=" ".join,
)
def test_the_command_line_refuses_them_before_it_begins(options):
    result = CliRunner().invoke(cli, [*options, "s3://bucket/place"])
    assert isinstance(result.exception, AnabranchError), result.output
    assert "'s3://bucket/place': expected a local path" in str(result.exception)
    assert os.listdir() == []


def test_a_file_address_is_a_path(tmp_path):
    (tmp_path / "my books").mkdir()
    (tmp_path / "my books" / "a.txt").write_text("to be\n")
    address = (tmp_path / "my books").as_uri()
    assert "%20" in address
    for given in (address, address.replace("file://", "file:"), f"{address}/*.txt"):
        assert ab.files(given).parts() == (str(tmp_path / "my books" / "a.txt"),)
    assert absolute(address) == storage_at(address).location == str(tmp_path / "my books")
    sink = ab.parquet(f"{address}/out")
    sink.open(ab.schema("x: int64"))
    assert read_back(tmp_path / "my books" / "out").column_names == ["x"]


def test_a_file_of_another_host_is_refused():
    with pytest.raises(SourceError, match="elsewhere"):
        ab.files("file://elsewhere/books")


def test_drives_and_names_with_a_colon_are_paths():
    for place in ("C:/data", "c:\\data", "./s3:/out", "2024-01-01T10:00:00.csv", "a:b", "s3:"):
        assert remote_scheme(place) is None
        assert local_path(place, "files") == os.path.abspath(place)


@pytest.mark.parametrize("kind", [str, Path])
def test_a_password_is_not_repeated(kind):
    with pytest.raises(SinkError) as caught:
        ab.parquet(kind("s3://user:secret@bucket/out"))
    assert "secret" not in str(caught.value)
    assert "bucket/out" in str(caught.value)


def test_a_checkpoint_is_no_folder_with_the_name_of_a_scheme():
    with pytest.raises(StateError, match="a URI that can be reached"):
        storage_at(Path("zz://bucket/checkpoint"))
    assert absolute("s3a://bucket/checkpoint") == "s3a://bucket/checkpoint"
    assert os.listdir() == []
