"""Tweets, which several applications are about: hashtags and words in texts, and random tweets.

Those are JSON texts, written in several languages, with hashtags that trend for some hours. Words
are real, so that what detects languages and moods has something to find; who writes, and about
what, follows Zipf's law.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.apps.kit.seeded_random import zipf

TIME_FORMAT = "%a %b %d %H:%M:%S +0000 %Y"
BEGIN = np.datetime64("2014-03-24T00:00:00", "s")
FIRST_ID = 448_000_000_000_000_000
ENGLISH_SHARE = 0.95
DELAYED_SHARE = 0.1
MOST_TAGS = 3
TREND_HOURS = 6
CUT_AT = 90
MISDATED_SHARE = 0.25  # of those that are malformed
MISDATED = "Sun Feb 30 25:00:00 +0000 2014"

# A letter is one of a to z, or stands from À on and not in General Punctuation. To know letters by
# their Unicode class would be exact, but to compile that takes longer than most batches.
_BETWEEN_HASHTAGS = r"[\x00-\"$-/:-^`{-\x{bf}\x{2000}-\x{206f}]+"
_HASHTAG = r"^#(?P<tag>[^#]+)"
BETWEEN_WORDS = r"[\x00-&(-,./:-`{-\x{bf}\x{2000}-\x{206f}]+"

Numbers = np.ndarray[Any, Any]

LANGUAGES = ("en", "es", "pt", "fr", "de")
"""Those that are told apart, by how many tweets are written in them."""

STOP_WORDS = {
    "en": "a all and are at be but for have i in is it just me my no not of on so that the they "
    "this to was we what when with you your",
    "es": "a al como con de del el en es la las lo los me mi muy no para pero por que se su un una "
    "y yo",
    "pt": "a ao as com como da de do e em eu mais mas me meu muito na no não o os para por que se "
    "um uma",
    "fr": "avec ce dans de des du elle en est et il je la le les mais ne nous pas pour que qui sur "
    "tout un une vous",
    "de": "aber auch auf das dem den der die ein eine er es für ich im ist mit nicht noch sie und "
    "von war wie wir zu",
}
"""Function words, of which a sentence has many whatever it is about."""

_CONTENT = {
    "en": "amazing awesome bad beautiful best boring bus coffee crazy day disaster don't excited "
    "fail fun game good great happy hate hope lol lost love lunch match monday morning music "
    "night omg phone rain sad school sick song sorry sun team thanks tired today tonight train "
    "ugly weekend win wonderful world worst",
    "es": "amigos ayer café casa fútbol gracias hoy lluvia lunes mañana música noche partido sol",
    "pt": "amanhã amigos café casa chuva dia escola futebol hoje jogo música noite obrigado sol",
    "fr": "aujourd'hui bonjour café demain école jour lundi maison match merci musique nuit pluie",
    "de": "bahn danke fußball gestern heute kaffee montag morgen musik nacht regen schule sonne",
}
_NAMED_TAGS = (
    "WorldCup MH370 GameOfThrones MarchMadness OpeningDay Heartbleed TheMasters TBT Selfie Jobs "
    "MTVAwards Wrestlemania FollowFriday CaptainAmerica NowPlaying UCL Crimea Tech Ebola 1"
)
_ENDINGS = ("", ".", "!", " :)", " ❤", r" \u2764", r" \"really\"", " http://t.co/x1")


def hashtags_in(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Hashtags in small letters and without the sign, and for each the number of its text.

    A hashtag is letters, digits and underscores behind a sign that stands behind none of those, nor
    behind another sign.

    Example:
        >>> tags, numbers = hashtags_in(pa.array(["#One, #two_2!", "none#at ##all"]))
        >>> tags.to_pylist(), numbers.to_pylist()
        (['one', 'two_2'], [0, 0])
    """
    with_sign = np.flatnonzero(pc.match_substring(texts, "#").to_numpy(zero_copy_only=False))
    lower = pc.utf8_lower(texts.take(pa.array(with_sign)))
    split = pc.split_pattern_regex(lower, _BETWEEN_HASHTAGS)
    tags = pc.struct_field(pc.extract_regex(split.flatten(), _HASHTAG), "tag")
    found = pc.is_valid(tags)
    numbers = pa.array(with_sign).take(pc.list_parent_indices(split))
    return tags.filter(found), numbers.filter(found)


def words(texts: pa.Array) -> pa.ListArray:
    """Runs of letters, digits, apostrophes and hyphens, in small letters; and empty words.

    Example:
        >>> words(pa.array(["Don't #win..."])).to_pylist()
        [["don't", 'win', '']]
    """
    return pc.split_pattern_regex(pc.utf8_lower(texts), BETWEEN_WORDS)


def random_tweets(
    rate_per_s: float, lateness: timedelta, users: int, distinct: int, malformed: float
) -> Any:
    """What makes the column `line`, for `generate`.

    Args:
        rate_per_s: How many tweets fall into a second.
        lateness: Some tweets come late by up to this.
        users: How many write.
        distinct: How many hashtags there are. Half of those that are used come from a slice of
            them that is popular for some hours.
        malformed: The share of tweets of which the end is missing; of one in four of them it is the
            time that cannot be right.
    """
    by_user, by_tag = zipf(users), zipf(distinct)
    tokens, starts, sizes = _vocabulary()
    tags = _tags(distinct)
    pool = pa.array([*tokens, *tags, *(tag.lower() for tag in tags)])
    shares = np.cumsum(
        [ENGLISH_SHARE, *[(1 - ENGLISH_SHARE) / (len(LANGUAGES) - 1)] * (len(LANGUAGES) - 1)]
    )

    def make(rng: np.random.Generator, index: Numbers) -> dict[str, pa.Array]:
        n = len(index)
        times = _times(rng, index, rate_per_s, lateness)
        languages = np.searchsorted(shares[:-1], rng.random(n), side="right")
        lengths = rng.integers(5, 15, n)
        spoken = np.repeat(languages, lengths)
        words = starts[spoken] + (rng.random(len(spoken)) * sizes[spoken]).astype(np.int64)
        counts = rng.integers(0, MOST_TAGS, n, endpoint=True)
        used = _popular(rng, np.repeat(times, counts), by_tag)
        used += len(tokens) + distinct * (rng.random(len(used)) < 0.5)
        texts = _sentences(pool, words, lengths, used, counts)
        ending = pa.array(_ENDINGS).take(pa.array(rng.integers(0, len(_ENDINGS), n)))
        stamps = pc.strftime(pa.array(BEGIN + times), format=TIME_FORMAT)
        drawn = rng.random(n)
        is_cut = drawn < (1 - MISDATED_SHARE) * malformed
        is_misdated = ~is_cut & (drawn < malformed)
        lines = pc.binary_join_element_wise(
            '{"created_at":"',
            pc.if_else(pa.array(is_misdated), MISDATED, stamps),
            '","id":',
            pa.array(FIRST_ID + index).cast(pa.string()),
            ',"text":"',
            texts,
            ending,
            '","user":{"screen_name":"user',
            pa.array(np.searchsorted(by_user, rng.random(n))).cast(pa.string()),
            '"},"lang":"',
            pa.array(LANGUAGES).take(pa.array(languages)),
            '"}',
            "",
        )
        cut = pc.utf8_slice_codeunits(lines, 0, CUT_AT)
        return {"line": pc.if_else(pa.array(is_cut), cut, lines)}

    return make


def _vocabulary() -> tuple[list[str], Numbers, Numbers]:
    """The words of all languages, and where those of each begin and how many there are."""
    pools = [STOP_WORDS[name].split() + _CONTENT[name].split() for name in LANGUAGES]
    sizes = np.array([len(pool) for pool in pools])
    return [word for pool in pools for word in pool], np.cumsum(sizes) - sizes, sizes


def _tags(distinct: int) -> list[str]:
    named = _NAMED_TAGS.split()
    more = [f"Topic{number}" for number in range(distinct - len(named))]
    return [f"#{name}" for name in [*named, *more][:distinct]]


def _times(rng: np.random.Generator, index: Numbers, rate_per_s: float, lateness: timedelta) -> Any:
    """Seconds since the beginning; whole ones, as Twitter has them."""
    drawn, delay = rng.random(len(index)), rng.random(len(index))
    delays = (delay * (int(lateness.total_seconds()) + 1)).astype(np.int64)
    return (index / rate_per_s).astype(np.int64) - np.where(drawn < DELAYED_SHARE, delays, 0)


def _popular(rng: np.random.Generator, times: Numbers, by_tag: Numbers) -> Any:
    """Hashtags by number: half of them lasting ones, half those of the hour."""
    ranks = np.searchsorted(by_tag, rng.random(len(times)))
    shift = 7 * (times // (TREND_HOURS * 3600)) * (rng.random(len(times)) < 0.5)
    return (ranks + shift) % len(by_tag)


def _sentences(
    pool: pa.Array, words: Numbers, lengths: Numbers, tags: Numbers, counts: Numbers
) -> pa.Array:
    """The words of each tweet and then its hashtags, with spaces between."""
    both = lengths + counts
    offsets = np.r_[0, np.cumsum(both)]
    is_word = np.arange(offsets[-1]) - np.repeat(offsets[:-1], both) < np.repeat(lengths, both)
    tokens = np.empty(offsets[-1], np.int64)
    tokens[is_word], tokens[~is_word] = words, tags
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pool.take(pa.array(tokens)))
    return pc.binary_join(lists, " ")
