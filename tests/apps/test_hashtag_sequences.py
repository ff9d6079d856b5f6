from __future__ import annotations

import anabranch as ab
from anabranch.apps import app, hashtag_sequences
from anabranch.testing.sequential import run_sequential


def found(flow):
    return [(row["hashtag"], row["n"]) for row in run_sequential(flow).rows("out")]


def reference(tweets, sequence):
    """Hashtag by hashtag, over the words of its tweets in a row."""
    counts = {}
    for tag in {tag for _, tags in tweets for tag in tags}:
        following = n = 0
        for text, tags in tweets:
            if tag in tags:
                for word in text.split():
                    if word == sequence[following]:
                        following = (following + 1) % len(sequence)
                        n += following == 0
        if n:
            counts[tag] = n
    return counts


def test_a_sequence_may_run_across_tweets_of_one_hashtag():
    tweets = [("wake", ["a"]), ("up", ["b"]), ("up now", ["a"]), ("world", ["a", "b"])]
    assert found(hashtag_sequences.build(tweets=tweets)) == [("a", 1)]


def test_a_tweet_counts_for_each_of_its_hashtags():
    tweets = [("wake up world", ["a", "b"]), ("none of it", []), ("wake up world wake", ["b", "b"])]
    assert sorted(found(hashtag_sequences.build(tweets=tweets))) == [("a", 1), ("b", 1), ("b", 2)]


def test_a_word_that_comes_twice_in_the_sequence_is_looked_for_twice():
    tweets = [("go go stop", ["a"]), ("go stop", ["a"])]
    made = found(hashtag_sequences.build(tweets=tweets, sequence=["go", "go", "stop"]))
    assert made == [("a", 1)]


def test_generated_tweets_are_counted_as_by_hand():
    flow = hashtag_sequences.build(rows=600, distinct=20)
    rows = flow.graph.steps["tweets"].body.source.read("generated", 0, 600).batch.to_pylist()
    tweets = [(row["text"], row["hashtags"]) for row in rows]
    assert {len(tags) for _, tags in tweets} == {0, 1, 2, 3}
    last = dict(found(flow))
    assert len(last) == 20
    assert last == reference(tweets, hashtag_sequences.SEQUENCE)


def test_it_does_not_matter_how_it_is_run():
    report = ab.check(hashtag_sequences.build(rows=100, distinct=12), cases=12, rows=100)
    assert report.ok, report


def test_it_is_known_by_name():
    assert app("hashtag-sequences") is hashtag_sequences
