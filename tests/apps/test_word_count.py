from __future__ import annotations

import time
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.apps import app, word_count
from anabranch.errors import BuildError, SourceError
from anabranch.testing.sequential import run_sequential

DEADLINE_S = 20.0


def collected(flow):
    """What the sink gets, in large batches."""
    run = ab.start(flow, engine="local", policy="none")
    run.await_termination()
    return flow.graph.steps["out"].body.sink.table()


def counts(table):
    """The last count of each word."""
    return dict(zip(table["word"].to_pylist(), table["n"].to_pylist(), strict=True))


def counted(text):
    return counts(run_sequential(word_count.build(text=text)).outputs["out"])


def lines(rows, **config):
    flow = word_count.build(rows=rows, **config)
    return (
        flow.graph.steps["lines"].body.source.read("generated", 0, rows).batch["line"].to_pylist()
    )


def test_words_are_counted():
    assert counted("to be or\nnot to be") == {"to": 2, "be": 2, "or": 1, "not": 1}


@pytest.mark.parametrize("text", ["  a  b ", "a\n\n\nb", "\n   \na b", " \na\nb\n\n"])
def test_what_stands_between_words_is_no_word(text):
    assert counted(text) == {"a": 1, "b": 1}


def test_words_are_told_apart_by_every_character():
    assert counted("Ä a A ä a\u0301 á") == dict.fromkeys(["Ä", "a", "A", "ä", "a\u0301", "á"], 1)


def test_a_word_may_be_as_long_as_a_line():
    giant = "x" * 2_000_000
    assert counts(collected(word_count.build(text=f"{giant} a\n{giant}"))) == {giant: 2, "a": 1}


def test_nine_words_in_ten_may_be_the_same():
    text = "\n".join(f"the the the the the the the the the w{n}" for n in range(500))
    found = counts(collected(word_count.build(text=text)))
    assert found.pop("the") == 4500
    assert set(found.values()) == {1}


@pytest.mark.parametrize("text", ["", "\n", "   \n  \n"])
def test_no_words_give_no_counts(text):
    assert counted(text) == {}


def test_it_does_not_matter_how_it_is_run():
    flow = word_count.build(text="a b  a\n\nc a b\nb b\n c\n" * 5)
    report = ab.check(flow, cases=12, rows=25, processes=0)
    assert report.ok, report


# --- generated lines --------------------------------------------------------------------------


def test_lines_have_ten_words_whose_frequencies_follow_zipf():
    words = Counter()
    for line in lines(5_000, distinct=100):
        assert len(line.split(" ")) == word_count.WORDS_A_LINE == 10
        words.update(line.split(" "))
    assert len(words) == 100
    assert words["w0"] / words["w1"] == pytest.approx(2, rel=0.1)
    assert words["w0"] / words["w9"] == pytest.approx(10, rel=0.1)


def test_the_lines_follow_from_the_seed():
    one, same, other = (lines(2000, seed=seed) for seed in (1, 1, 2))
    assert one == same != other
    assert lines(1500, seed=1) == one[:1500]


# --- the user's files -------------------------------------------------------------------------


def test_files_give_what_the_same_lines_give_otherwise(tmp_path):
    made = lines(300, distinct=50)
    (tmp_path / "a.txt").write_text("\n".join(made[:100]) + "\n")
    (tmp_path / "b.txt").write_text("\n".join(made[100:]))  # no end of line at the end
    found = counts(collected(word_count.build(input=str(tmp_path / "*.txt"))))
    assert found == counts(collected(word_count.build(rows=300, distinct=50)))


def test_files_may_be_given_by_the_name_of_the_source(tmp_path):
    (tmp_path / "a.txt").write_text("to be")
    named = word_count.build(input={"lines": str(tmp_path / "a.txt")})
    assert counts(collected(named)) == {"to": 1, "be": 1}


@pytest.mark.parametrize(("argument", "value"), [("distinct", 0), ("text", 5)])
def test_arguments_that_cannot_be_are_refused(argument, value):
    with pytest.raises(BuildError, match=f"expected {argument}: "):
        word_count.build(**{argument: value})


def test_an_empty_file_has_no_words(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    assert collected(word_count.build(input=str(tmp_path / "empty.txt"))).num_rows == 0


def test_a_million_different_words_are_counted_in_some_seconds(tmp_path):
    (tmp_path / "many.txt").write_text("\n".join(f"word{n}" for n in range(1_000_000)))
    start = time.perf_counter()
    table = collected(word_count.build(input=str(tmp_path / "many.txt")))
    assert time.perf_counter() - start < DEADLINE_S
    assert table.num_rows == 1_000_000
    assert set(table["n"].unique().to_pylist()) == {1}


# --- what is said -----------------------------------------------------------------------------


def test_the_summary_shows_what_came_most_often():
    flow = word_count.build(text="\n".join(f"w{n} " * (n + 1) for n in range(30)))
    said = str(word_count.Summary.of({"out": collected(flow)})).splitlines()
    assert said[0] == "top words of 30:"
    assert len(said) == 1 + word_count.TOP
    assert said[1].split() == ["w29", "30"]


def test_the_summary_of_nothing_says_so():
    table = run_sequential(word_count.build(text="")).outputs["out"]
    assert str(word_count.Summary.of({"out": table})) == "top words of 0:"


def test_it_is_known_by_name():
    assert app("word-count").module is word_count


@pytest.mark.parametrize("name", ["word-count", "sentiment", "log-watch"])
def test_parquet_is_no_text(name, tmp_path):
    (tmp_path / "a.txt").write_text("to be\n")
    pq.write_table(pa.table({"line": ["to be"]}), tmp_path / "b")
    with pytest.raises(SourceError, match=r"text in .*b, got a Parquet file; .*files\(…, on_bad"):
        app(name).build(input=str(tmp_path))


def test_a_text_may_begin_as_parquet_does(tmp_path):
    (tmp_path / "a.txt").write_text("PAR1 is what Parquet begins with\n")
    flow = word_count.build(input=str(tmp_path))
    assert counts(run_sequential(flow).outputs["out"])["PAR1"] == 1
