from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.apps import app, sentiment
from anabranch.errors import BuildError
from anabranch.testing.sequential import run_sequential
from tests.sampling import thorough

NOON = datetime(2014, 3, 24, 12)
TIME_FORMAT = "%a %b %d %H:%M:%S +0000 %Y"


def tweet(text, seconds=0, user="ann", **more):
    """A line as Twitter writes it."""
    when = (NOON + timedelta(seconds=seconds)).strftime(TIME_FORMAT)
    given = {"created_at": when, "id": 7, "text": text, "user": {"screen_name": user}}
    return json.dumps({**given, **more})


@pytest.fixture
def found(tmp_path):
    """What the sinks get of lines in a file."""

    def run(*lines, **config):
        path = tmp_path / "tweets.jsonl"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return run_sequential(sentiment.build(input=str(path), **config))

    return run


def moods(result):
    """The last that was said of each user."""
    return {row["user"]: (row["tweets"], row["mood"]) for row in result.rows("users")}


def ranking(result):
    """The hashtags of the last window, best first."""
    rows = result.rows("out")
    return [
        (r["rank"], r["hashtag"], r["n"]) for r in rows if r["window_end"] == rows[-1]["window_end"]
    ]


def generated(rows, **config):
    flow = sentiment.build(rows=rows, **config)
    return flow.graph.steps["tweets"].body.source.read("generated", 0, rows).batch["line"]


def times_of(lines):
    return [datetime.strptime(json.loads(line)["created_at"], TIME_FORMAT) for line in lines]


# The generator


def test_generated_tweets_have_the_proportions_that_are_promised():
    lines = generated(20_000, malformed=0.02).to_pylist()
    whole = [json.loads(line) for line in lines if line.endswith("}")]
    assert 240 < len(lines) - len(whole) < 360, "three in four that are malformed are cut"
    assert 60 < sum(each["created_at"].startswith("Sun Feb 30") for each in whole) < 140
    languages = Counter(each["lang"] for each in whole)
    assert set(languages) == {"en", "es", "pt", "fr", "de"}
    assert languages["en"] / len(whole) == pytest.approx(0.95, abs=0.01)
    assert {each["text"].count("#") for each in whole} == {0, 1, 2, 3}
    users = Counter(each["user"]["screen_name"] for each in whole)
    first, second = (n for _, n in users.most_common(2))
    assert first / second == pytest.approx(2, rel=0.2)  # Zipf's law


def test_the_data_are_as_many_as_the_papers_and_of_the_same_weeks():
    flow = sentiment.build(malformed=0)
    source = flow.graph.steps["tweets"].body.source
    first, last = source.read("generated", 0, 1), source.read("generated", 159_619, 10)
    assert last.batch.num_rows == 1
    assert [times_of(c.batch["line"].to_pylist())[0].date().isoformat() for c in (first, last)] == [
        "2014-03-24",
        "2014-04-13",
    ]


def test_generated_tweets_come_out_of_order_by_at_most_the_lateness():
    lateness = timedelta(minutes=1)
    times = times_of(generated(5000, malformed=0, lateness=lateness).to_pylist())
    behind = [max(times[:n]) - time for n, time in enumerate(times) if n]
    late = [delay for delay in behind if delay > timedelta()]
    assert 100 < len(late) < 600
    assert max(late) <= lateness
    ordered = times_of(generated(500, malformed=0, lateness=timedelta()).to_pylist())
    assert ordered == sorted(ordered)


def test_what_trends_changes_with_the_hours():
    texts = [
        json.loads(line)["text"].lower() for line in generated(16_000, malformed=0).to_pylist()
    ]
    leaders = set()
    for day in range(0, 16_000, 4000):
        tags = Counter(
            word for text in texts[day : day + 1000] for word in text.split() if word[0] == "#"
        )
        leaders.update(tag for tag, _ in tags.most_common(4))
    assert len(leaders) > 6


def test_the_data_follow_from_the_seed():
    one, same, other = (generated(50, seed=n) for n in (1, 1, 2))
    assert one == same != other


# What the steps do


def test_the_score_of_a_tweet_is_the_sum_of_its_words(found):
    result = found(
        tweet("I love this, it is the BEST!", user="ann"),  # 3 + 3
        tweet("the worst bus and a bad, bad day", user="ben"),  # -3 - 3 - 3
        tweet("the bus is at the station", user="cat"),
        tweet("that #win was my #win", user="ann"),  # 4 + 4
    )
    assert moods(result) == {"ann": (2, 7.0), "ben": (1, -9.0), "cat": (1, 0.0)}
    assert result.rows("mood")[-1] == {"tweets": 4, "mood": 5 / 4}


def test_a_word_is_found_between_any_signs_but_not_within_another(found):
    result = found(
        tweet("the “good”, (good) good-\u2014good; goodly a@good_bad and l'good is", user="x")
    )
    # “good”, (good), good behind the dash, good_bad's two halves; not good- nor l'good
    assert moods(result) == {"x": (1, 3 + 3 + 3 + 3 - 3)}


def test_phrases_and_emoticons_of_the_list_do_not_count(found):
    words = sentiment.lexicon()
    assert (min(words.values()), max(words.values())) == (-5, 5)
    assert len(words) > 3000
    assert not [word for word in words if " " in word]
    # "bad luck" is one of its phrases, worth -2; "bad" is worth -3 and "luck" 3.
    assert moods(found(tweet("what bad luck is this :)"))) == {"ann": (1, 0.0)}


@pytest.mark.parametrize(
    ("text", "lang"),
    [
        ("I have no idea what this is", "en"),
        ("hoy no hay fútbol por la lluvia en mi casa", "es"),
        ("eu não gosto muito de chuva", "pt"),
        ("je ne suis pas dans le train", "fr"),
        ("Das ist nicht für mich", "de"),
        ("coffee", "und"),
        ("", "und"),
        ("a", "en"),  # also Spanish and Portuguese: the first wins
    ],
)
def test_function_words_tell_the_language(text, lang):
    batch = pa.record_batch({"text": [text]})
    assert sentiment.language(batch)["lang"].to_pylist() == [lang]


def test_tweets_in_other_languages_are_neither_scored_nor_ranked(found):
    result = found(tweet("das ist love #eins"), tweet("love"), tweet("this is love #two"))
    assert moods(result) == {"ann": (1, 3.0)}
    assert ranking(result) == [(1, "two", 1)]


def test_what_counts_as_a_hashtag(found):
    result = found(
        tweet("this is #One and #ONE, #two_2! (#drei) ##no a#no # #1 #2014 #_ #été\n#end#no", 1)
    )
    assert ranking(result) == [
        (1, "one", 2),
        (2, "drei", 1),
        (3, "end", 1),
        (4, "two_2", 1),
        (5, "été", 1),
    ]


def test_the_ranking_of_a_window_takes_in_all_parts_and_settles_ties_by_name(found):
    tags = [f"t{n:02}" for n in range(30)]
    lines = [tweet(f"the #{tag}", 1) for tag in reversed(tags)]
    assert ranking(found(*lines, tweet("the #t29", 2), top=4)) == [
        (1, "t29", 2),
        (2, "t00", 1),
        (3, "t01", 1),
        (4, "t02", 1),
    ]


def test_a_hashtag_counts_in_every_window_that_holds_its_tweet(found):
    result = found(
        tweet("the #a", 0),
        tweet("the #b", 40),
        tweet("the #a", 59),
        window=timedelta(seconds=60),
        slide=timedelta(seconds=30),
    )
    ranked = [
        ((r["window_end"] - NOON).seconds, r["rank"], r["hashtag"], r["n"])
        for r in result.rows("out")
    ]
    assert ranked == [
        (30, 1, "a", 1),
        (60, 1, "a", 2),
        (60, 2, "b", 1),
        (90, 1, "a", 1),
        (90, 2, "b", 1),
    ]


def test_without_the_package_it_says_how_to_get_it(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(sentiment, "distribution", missing)
    with pytest.raises(BuildError, match=r"pip install 'anabranch\[sentiment\]'"):
        sentiment.build()


# The user's own files


def test_the_users_own_file_gives_what_the_generated_tweets_give(tmp_path):
    config = {"rate_per_s": 0.5, "window": timedelta(minutes=2), "slide": timedelta(minutes=1)}
    made = sentiment.build(rows=60, malformed=0.2, **config)
    lines = generated(60, malformed=0.2, **config).to_pylist()
    path = tmp_path / "tweets.json"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    ours, theirs = run_sequential(made), run_sequential(sentiment.build(input=str(path), **config))
    assert len(ours.rows("out")) > 5
    assert len(ours.rows("tweets.bad")) > 2
    assert len(ours.rows("dated.bad")) > 0
    for sink in ours.outputs:
        assert theirs.rows(sink) == ours.rows(sink)


def test_bad_tweets_are_counted_and_harm_no_other(found):
    good = tweet("this is good #x")
    result = found(
        good,
        "",
        "[1, 2]",
        '{"text": "cut',
        json.dumps({"text": "no time"}),
        tweet(None),
        tweet(7),
        tweet("a text", created_at="2014-03-24T12:00:00"),
        tweet("a text", created_at="Mon Xyz 24 12:00:00 +0000 2014"),
        good,
    )
    assert len(result.rows("tweets.bad")) == 5  # a blank line is no row
    assert [row["created_at"][:3] for row in result.rows("dated.bad")] == ["201", "Mon"]
    assert result.counters["parse"].skipped == 5
    assert result.counters["dated"].skipped == 2
    assert moods(result) == {"ann": (2, 3.0)}
    assert len(result.rows("stored")) == 10


def test_a_tweet_without_a_user_counts_all_the_same(found):
    nobody = tweet("this is good", user=None)
    bare = json.dumps({"created_at": json.loads(nobody)["created_at"], "text": "it is bad"})
    assert moods(found(nobody, bare)) == {None: (2, 0.0)}


def test_late_tweets_are_set_aside(found):
    result = found(
        tweet("the #a", 100),
        tweet("the #late", 39),
        tweet("the #b", 40),
        tweet("the #future", 10**9),
        tweet("the #c", 101),
        lateness=timedelta(seconds=60),
    )
    assert [row["text"] for row in result.rows("late")] == ["the #late", "the #future"]
    assert [tag for _, tag, _ in ranking(result)] == ["a", "b", "c"]


def test_an_empty_file_gives_nothing_and_says_so(found):
    result = found()
    assert {name: table.num_rows for name, table in result.outputs.items()} == dict.fromkeys(
        ["stored", "tweets.bad", "dated.bad", "late", "mood", "users", "out"], 0
    )
    assert str(sentiment.Summary.of(result.outputs)) == (
        "0 English tweets of 0 users, mood +0.00\nno hashtags"
    )


# Hard data, and all together


def test_one_user_and_one_hashtag_may_have_nearly_all_tweets(tmp_path):
    lines = [
        tweet(
            "this is good #all" if n % 10 else f"it is bad #t{n}",
            n // 100,
            "all" if n % 10 else f"u{n}",
        )
        for n in range(5000)
    ]
    path = tmp_path / "skewed.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    outputs = {name: ab.collect() for name in ("mood", "users", "out")}
    ab.run(sentiment.build(input=str(path)).writing(outputs), engine="local", policy="none")
    ranked = outputs["out"].table()
    first = ranked.filter(pc.equal(ranked["rank"], 1))
    assert pc.unique(first["hashtag"]).to_pylist() == ["all"]
    assert pc.unique(first["n"]).to_pylist() == [4500]
    assert outputs["mood"].table().to_pylist()[-1] == {
        "tweets": 5000,
        "mood": (4500 * 3 - 500 * 3) / 5000,
    }


def test_texts_may_be_empty_long_and_of_any_letters(found):
    long = "this is good " * 5000
    result = found(tweet(long), tweet(""), tweet('é😀\u0000\\" is 日本 #日本 a'), tweet("#" * 300))
    assert moods(result) == {"ann": (2, 5000 * 3 / 2)}
    assert ranking(result) == [(1, "日本", 1)]


def test_raw_tweets_are_stored_where_it_is_said(tmp_path):
    store = tmp_path / "raw"
    flow = sentiment.build(rows=100, store=str(store))
    ab.run(flow, engine="local", policy="none")
    assert pq.read_table(store)["line"].to_pylist() == generated(100).to_pylist()


def test_it_says_what_it_found():
    result = run_sequential(sentiment.build(rows=30, malformed=0))
    lines = str(sentiment.Summary.of(result.outputs)).splitlines()
    assert lines[0].startswith(f"{len(result.rows('mood'))} English tweets of ")
    assert lines[1].endswith("; the last:")
    assert lines[2].split()[0] == "1"


@thorough
def test_it_does_not_matter_how_it_is_run():
    report = ab.check(
        sentiment.build(rows=100, rate_per_s=0.1, distinct=20, users=10, malformed=0.05),
        cases=4,
        rows=40,
        processes=0,
    )
    assert report.ok, report


def test_it_is_known_by_name():
    assert app("sentiment").module is sentiment
