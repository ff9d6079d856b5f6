from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.apps import app, hashtag_sequences
from anabranch.errors import BuildError, SchemaError
from anabranch.testing.sequential import run_sequential
from tests.sampling import thorough

WHOLE = "wake up world"


def found(flow):
    return [(row["hashtag"], row["n"]) for row in run_sequential(flow).rows("out")]


def generated(rows, **config):
    flow = hashtag_sequences.build(rows=rows, **config)
    batch = flow.graph.steps["tweets"].body.source.read("generated", 0, rows).batch
    return pa.Table.from_batches([batch])


@pytest.fixture
def lines(tmp_path):
    """A file of JSON lines."""

    def write(*given):
        path = tmp_path / "tweets.jsonl"
        texts = [each if isinstance(each, str) else json.dumps(each) for each in given]
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        return str(path)

    return write


def test_a_sequence_may_run_across_tweets_of_one_hashtag():
    tweets = [("wake", ["a"]), ("up", ["b"]), ("up now", ["a"]), ("world", ["a", "b"])]
    assert found(hashtag_sequences.build(tweets=tweets)) == [("a", 1)]


def test_a_tweet_counts_for_each_of_its_hashtags():
    tweets = [(WHOLE, ["a", "b"]), ("none of it", []), (f"{WHOLE} wake", ["b", "b"])]
    assert sorted(found(hashtag_sequences.build(tweets=tweets))) == [("a", 1), ("b", 1), ("b", 2)]


def test_a_word_that_comes_twice_in_the_sequence_is_looked_for_twice():
    tweets = [("go go stop", ["a"]), ("go stop", ["a"])]
    made = found(hashtag_sequences.build(tweets=tweets, sequence=["go", "go", "stop"]))
    assert made == [("a", 1)]


def test_neither_hashtags_nor_words_differ_by_the_size_of_their_letters(lines):
    path = lines(
        {"text": "wake up", "hashtags": ["Monday"]},
        {"text": "world #Monday"},
        {"text": "Wake up world! #monday"},
    )
    assert found(hashtag_sequences.build(input=path)) == [("monday", 1), ("monday", 2)]
    tweets = [("Wake", ["A"]), ("up, (WORLD)", ["a"]), ("it's wake-up world", ["a"])]
    assert found(hashtag_sequences.build(tweets=tweets)) == [("a", 1)]


def test_a_text_of_several_words_stands_for_those():
    for sequence in (["Wake up, world!"], ["wake up", "world"]):
        flow = hashtag_sequences.build(tweets=[(WHOLE, ["a"])], sequence=sequence)
        assert found(flow) == [("a", 1)]


def test_generated_tweets_have_the_proportions_that_are_promised():
    rows = generated(4000, distinct=50).to_pylist()
    words = Counter(word for row in rows for word in row["text"].split())
    assert {len(row["text"].split()) for row in rows} == {8}
    wanted = sum(words[word] for word in hashtag_sequences.SEQUENCE)
    assert wanted / words.total() == pytest.approx(0.5, abs=0.02)
    assert set(Counter(len(row["hashtags"]) for row in rows)) == {0, 1, 2, 3}
    tags = Counter(tag for row in rows for tag in row["hashtags"])
    assert len(tags) == 50
    assert tags["tag0"] / tags["tag1"] == pytest.approx(2, rel=0.2)  # Zipf's law


def test_the_data_follow_from_the_seed():
    one, same, other = (generated(50, seed=n) for n in (1, 1, 2))
    assert one == same != other


def test_the_users_own_file_gives_what_the_generated_tweets_give(lines, tmp_path):
    table = generated(100, distinct=10)
    expected = found(hashtag_sequences.build(rows=100, distinct=10))
    assert len(expected) > 20
    parquet = tmp_path / "tweets.parquet"
    pq.write_table(table, parquet)
    for path in (lines(*table.to_pylist()), str(parquet)):
        assert found(hashtag_sequences.build(input=path)) == expected


def test_hashtags_that_no_list_names_are_those_in_the_text(lines):
    path = lines(
        {"text": f"{WHOLE} #One #two!", "lang": "en"},
        {"text": f"{WHOLE} #one", "hashtags": None},
        {"text": f"{WHOLE} #unsaid", "hashtags": ["two", None]},
        {"text": f"{WHOLE} #unsaid", "hashtags": []},
    )
    assert sorted(found(hashtag_sequences.build(input=path))) == [
        ("one", 1),
        ("one", 2),
        ("two", 1),
        ("two", 2),
    ]


def test_bad_tweets_are_counted_and_harm_no_other(lines):
    good = {"text": WHOLE, "hashtags": ["a"]}
    bad = ['{"text": "cut', {"hashtags": ["a"]}, {"text": "x", "hashtags": "a"}, {"text": 1}]
    result = run_sequential(hashtag_sequences.build(input=lines(good, *bad, good)))
    assert [(row["hashtag"], row["n"]) for row in result.rows("out")] == [("a", 1), ("a", 2)]
    assert len(result.rows("tweets.bad")) == result.counters["tweets.parse"].skipped == 4


def test_files_that_cannot_hold_lists_are_refused(tmp_path):
    path = tmp_path / "tweets.csv"
    path.write_text("text,hashtags\nwake,a\n")
    with pytest.raises(SchemaError, match="columns that a CSV record can hold"):
        hashtag_sequences.build(input=str(path))


def test_an_empty_file_gives_nothing_and_says_so(lines):
    result = run_sequential(hashtag_sequences.build(input=lines()))
    assert result.rows("out") == []
    assert str(hashtag_sequences.Summary.of(result.outputs)) == "sequences of 0 hashtags:"


def test_one_hashtag_may_have_nearly_all_tweets():
    tweets = [(WHOLE, ["all" if n % 10 else f"t{n}"]) for n in range(3000)]
    out = ab.collect()
    flow = hashtag_sequences.build(tweets=tweets).writing({"out": out})
    ab.run(flow, engine="local", policy="none")
    counts = out.table().group_by("hashtag").aggregate([("n", "max"), ("n", "count")]).to_pylist()
    assert {(row["hashtag"], row["n_max"], row["n_count"]) for row in counts} == {
        ("all", 2700, 2700),
        *((f"t{n}", 1, 1) for n in range(0, 3000, 10)),
    }


def test_texts_and_hashtags_may_be_empty_long_and_of_any_letters():
    tweets = [
        ("", ["a"]),
        (f"{WHOLE} " * 5000, ["", "日本"]),
        ("wake\tup\u00a0world", ["a", "😀" * 300]),  # other spaces part words, too
    ]
    last = dict(found(hashtag_sequences.build(tweets=tweets)))
    assert last == {"": 5000, "日本": 5000, "a": 1, "😀" * 300: 1}


def test_it_says_what_it_found():
    tweets = [(WHOLE, ["a", "bb"]), (WHOLE, ["bb"])]
    outputs = run_sequential(hashtag_sequences.build(tweets=tweets)).outputs
    assert (
        str(hashtag_sequences.Summary.of(outputs)) == "sequences of 2 hashtags:\n  #bb  2\n  #a   1"
    )


@thorough
def test_it_does_not_matter_how_it_is_run():
    report = ab.check(
        hashtag_sequences.build(rows=100, distinct=12), cases=12, rows=100, processes=0
    )
    assert report.ok, report


def test_files_do_not_change_that(lines):
    texts = ["wake #a", "up #b world", "world wake up #a #b", "up world #a", "{", "world #b"]
    flow = hashtag_sequences.build(input=lines(*({"text": text} for text in texts), "{"), buckets=3)
    assert ab.check(flow, cases=4, processes=0).ok


def test_files_may_be_given_by_the_name_of_the_source(lines):
    path = lines({"text": WHOLE, "hashtags": ["a"]})
    assert found(hashtag_sequences.build(input={"tweets": path})) == [("a", 1)]


REFUSED = [("distinct", 0), ("sequence", ()), ("sequence", ["..."]), ("buckets", 0)]


@pytest.mark.parametrize(("argument", "value"), REFUSED)
def test_arguments_that_cannot_be_are_refused(argument, value):
    with pytest.raises(BuildError, match=f"expected {argument}: "):
        hashtag_sequences.build(**{argument: value})


def test_it_is_known_by_name():
    assert app("hashtag-sequences").module is hashtag_sequences
