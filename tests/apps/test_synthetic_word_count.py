from __future__ import annotations

import inspect
import time

import pytest

import anabranch as ab
from anabranch.apps import app, synthetic_word_count, word_count
from anabranch.testing.sequential import run_sequential
from tests.sampling import thorough


def collected(flow):
    """What the sink gets, in large batches."""
    run = ab.start(flow, engine="local", policy="none")
    run.await_termination()
    return flow.graph.steps["out"].body.sink.table()


def counts(table):
    """The last count of each word."""
    return dict(zip(table["word"].to_pylist(), table["n"].to_pylist(), strict=True))


def quick(**config):
    return synthetic_word_count.build(**{"wait_ms": 0.001, "rate_per_s": None, **config})


def test_counts_are_those_of_word_count():
    found = counts(collected(quick(rows=500, distinct=80)))
    assert found == counts(collected(word_count.build(rows=500, distinct=80)))
    assert len(found) == 80


def test_every_line_waits():
    start = time.perf_counter()
    collected(quick(text="a b\n" * 40, wait_ms=3.0))
    assert time.perf_counter() - start >= 0.12


def test_a_line_waits_for_a_millisecond_unless_told_otherwise():
    defaults = inspect.signature(synthetic_word_count.build).parameters
    assert defaults["wait_ms"].default == 1.0


def test_lines_come_at_a_rate_so_that_more_replicas_can_help():
    source = synthetic_word_count.build(rate_per_s=50).graph.steps["lines"].body.source
    assert source.due_rows(2.0) == 100


def test_edges_of_texts_are_those_of_word_count():
    assert counts(run_sequential(quick(text="  a  b \n\na")).outputs["out"]) == {"a": 2, "b": 1}
    assert counts(run_sequential(quick(text="")).outputs["out"]) == {}


def test_nine_words_in_ten_may_be_the_same():
    text = "\n".join(f"the the the the the the the the the w{n}" for n in range(100))
    assert counts(collected(quick(text=text)))["the"] == 900


def test_files_give_what_the_same_lines_give_otherwise(tmp_path):
    source = quick(rows=200, distinct=30).graph.steps["lines"].body.source
    lines = source.read("generated", 0, 200).batch["line"].to_pylist()
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    found = counts(collected(quick(input=str(tmp_path / "lines.txt"))))
    assert found == counts(collected(quick(rows=200, distinct=30)))


def test_an_empty_file_has_no_words(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    table = collected(quick(input=str(tmp_path / "empty.txt")))
    assert str(synthetic_word_count.Summary.of({"out": table})) == "top words of 0:"


@thorough
def test_it_does_not_matter_how_it_is_run():
    report = ab.check(quick(text="a b  a\n\nc a b\nb b\n c\n" * 5), cases=12, rows=25, processes=0)
    assert report.ok, report


@pytest.mark.parametrize("seed", [1, 2])
def test_the_lines_are_those_of_word_count(seed):
    flows = quick(rows=50, seed=seed), word_count.build(rows=50, seed=seed)
    one, other = (f.graph.steps["lines"].body.source.read("generated", 0, 50) for f in flows)
    assert one.batch == other.batch


def test_it_is_known_by_name():
    assert app("synthetic-word-count").module is synthetic_word_count
