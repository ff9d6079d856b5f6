"""Fraud detection: card transactions whose order is unlikely for honest customers.

The application FD of BriskStream (§6, appendix B), known from Storm's benchmarks. A transaction has
a type of three letters: its amount (Low, Normal, High), whether an expensive item was bought (High,
Normal), and the time since the one before (Long, Normal, Short). A Markov model says how likely one
type follows another. The score of a transaction is the miss probability over its account's last
ten: the mean of 1 - P(type | type before). Above 0.8 the transaction is an outlier. As in the paper
every transaction leaves with its score, outlier or not; before an account has ten, it has none.
The step `types` is ours: transactions of a type that does not exist leave to the sink `bad`.

The paper's model was trained on data that are not public. Ours is three small chains, one for each
letter, multiplied; its probabilities are whole millionths, so scores are exact.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.apps.kit.arguments import a_count, a_number, a_share, require
from anabranch.apps.kit.columns import required
from anabranch.apps.kit.inputs import Input, paths_of, read_rows
from anabranch.apps.kit.recent import Recent
from anabranch.apps.kit.seeded_random import draws, whole_draws
from anabranch.apps.kit.summary import AppSummary, Condensed, distinct, grouped
from anabranch.columns.grouped_rows import Runs
from anabranch.flow import Flow
from anabranch.io import collect, generate
from anabranch.operators.base import Operator
from anabranch.operators.keyed.keyed import KeyedState, keyed
from anabranch.operators.row_wise.screen import screen

SHOWN = 5
AMOUNT = {"L": (84, 12, 4), "N": (10, 86, 4), "H": (30, 50, 20)}
ITEM = {"N": (96, 4), "H": (80, 20)}
PAUSE = {"L": (80, 16, 4), "N": (8, 88, 4), "S": (10, 60, 30)}
"""From each letter, the per cent of cases in which each letter follows, in the same order."""

TYPES = ["".join(letters) for letters in product(AMOUNT, ITEM, PAUSE)]
CERTAIN = 1_000_000
LIKELY = np.array(
    [
        [a * i * p for a, i, p in product(AMOUNT[one[0]], ITEM[one[1]], PAUSE[one[2]])]
        for one in TYPES
    ]
)
"""How likely each type follows each, in millionths."""

_TYPES = pa.array(TYPES)

WINDOW = 10
THRESHOLD = 0.8
_BITS = 5  # hold the number of a type, from 1; 0 says that there was none
LONGEST = 63 // _BITS + 1  # window, such that all types but the newest fit one integer

TRANSACTIONS = required(account=pa.int64(), transaction=pa.int64(), type=pa.string())


def unknown_type(batch: pa.RecordBatch) -> pa.Array:
    """What is wrong with transactions whose type does not exist; null for the others."""
    known = pc.is_valid(pc.index_in(batch["type"], _TYPES))
    if pc.all(known).as_py():
        return pa.nulls(batch.num_rows, pa.string())
    said = pc.binary_join_element_wise("unknown type '", pc.fill_null(batch["type"], ""), "'", "")
    return pc.if_else(known, pa.scalar(None, pa.string()), said)


def predictor(window: int, threshold: float) -> Operator:
    """The step that gives each transaction its score."""
    missed = np.zeros((len(TYPES) + 1,) * 2, np.int64)
    missed[1:, 1:] = CERTAIN - LIKELY
    shifts = _BITS * np.arange(window - 1)

    @keyed(
        key="account",
        state="recent: int64",
        out="score: double, outlier: bool",
        keeps=["account", "transaction"],
    )
    def predict(batch: pa.RecordBatch, state: KeyedState) -> dict[str, Any]:
        runs = Runs(state.codes, state.groups)
        before = (state["recent"] >> shifts[::-1, None]) & ((1 << _BITS) - 1)
        types = pc.index_in(batch["type"], _TYPES).to_numpy() + 1
        recent = Recent(runs, types, before)
        state["recent"] = (recent.past() << shifts[::-1, None]).sum(axis=0)
        misses = np.zeros(len(runs), np.int64)
        later = types
        for back in range(1, window):
            earlier = recent.before(back)
            misses += missed[earlier, later]
            later = earlier
        known = later > 0  # there were as many as the window holds
        score = misses / (CERTAIN * (window - 1))
        return {"score": pa.array(score, mask=~known), "outlier": known & (score > threshold)}

    return predict


def build(
    *,
    input: Input | None = None,
    rows: int | None = 2_000_000,
    window: int = WINDOW,
    threshold: float = THRESHOLD,
    accounts: int = 16_383,
    stolen: float = 0.02,
    seed: int = 0,
) -> Flow:
    """Give the transactions of files, or generated ones, their scores.

    Args:
        input: Files with the columns account, transaction and type.
        rows: How many transactions to generate; None for an endless stream.
        window: Over how many transactions of an account a score goes.
        threshold: The score above which a transaction is an outlier.
        accounts: How many there are; few of them make many transactions.
        stolen: The share of generated transactions that a thief makes, who knows no habits.
        seed: Decides the generated transactions.

    Example:
        >>> build()
        Flow 'fraud-detection': transactions → types → bad → predictor → out
    """
    require(
        "fraud-detection",
        window=a_count(window, 2, LONGEST),
        threshold=a_number(threshold),
        accounts=a_count(accounts, 1, MOST_ACCOUNTS),
        stolen=a_share(stolen),
    )
    flow = Flow("fraud-detection")
    if input is not None:
        paths = paths_of(input, "transactions", ["transactions"])
        transactions = read_rows(flow, "transactions", paths, TRANSACTIONS)
    else:
        make = random_transactions(accounts, stolen, seed)
        source = generate(make, TRANSACTIONS, rows=rows, seed=seed)
        transactions = flow.source("transactions", source)
    known = transactions.apply("types", screen(unknown_type))
    known.errors.sink("bad", collect())
    known.apply("predictor", predictor(window, threshold)).sink("out", collect())
    return flow


class Summary(AppSummary):
    """How many outliers there are, and the accounts that have most of them.

    Example:
        >>> scored = {"account": [1, 2, 1], "score": [0.9, 0.5, 0.85]}
        >>> table = pa.table({**scored, "outlier": [True, False, True]})
        >>> print(Summary.of({"out": table}))
        2 of 3 transactions are outliers, on 1 of 2 accounts:
          account 1: 2, scores up to 0.900
    """

    def __init__(self) -> None:
        self._transactions = 0
        self._accounts = Condensed(distinct("account"))
        self._worst = Condensed(grouped(["account"], outlier="sum", score="max"))

    def add(self, sink: str, rows: pa.Table) -> None:
        if sink == "out":
            self._transactions += rows.num_rows
            self._accounts.add(rows)
            self._worst.add(rows.filter(rows["outlier"]))

    def __str__(self) -> str:
        ranked = self._worst.rows([("outlier", "descending"), ("account", "ascending")])
        lines = [
            f"  account {row['account']}: {row['outlier']:,}, scores up to {row['score']:.3f}"
            for row in ranked[:SHOWN]
        ]
        outliers = sum(row["outlier"] for row in ranked)
        accounts = f"{len(ranked):,} of {len(self._accounts):,} accounts"
        said = f"{outliers:,} of {self._transactions:,} transactions are outliers, on {accounts}:"
        return "\n".join([said, *lines])


MOST_ACCOUNTS = (1 << 31) - 1
_PRIME = 2_654_435_761
STRETCH = 16
"""Transactions of an account, after which a thief may take over, or give up."""


def random_transactions(accounts: int, stolen: float, seed: int) -> Any:
    """A generator: half as many accounts, twice the transactions each (Zipf's law by octaves).

    A stretch of an account's transactions follows the Markov model from a usual type on; a thief's
    types are all equally likely. Which transaction of its account a row is follows from its number,
    and its type from what is drawn for the stretch so far, so no row needs another one.
    """
    octaves = int(accounts).bit_length()
    firsts = 1 << np.arange(octaves)
    sizes = np.minimum(firsts, accounts + 1 - firsts)  # the last octave may have fewer
    usual = np.linalg.matrix_power(LIKELY / CERTAIN, 1000)[0].cumsum()
    follows = (LIKELY.cumsum(axis=1) / CERTAIN + np.arange(len(TYPES))[:, None]).ravel()
    texts = pa.array(TYPES)

    def make(rng: np.random.Generator, index: npt.NDArray[np.int64]) -> dict[str, Any]:
        turn, octave = np.divmod(index, octaves)
        number, place = np.divmod(turn, sizes[octave])
        # A prime factor only changes the order in which the accounts of an octave have their turn.
        place = (place * _PRIME + number) % sizes[octave]
        account = firsts[octave] + place
        stretch, step = np.divmod(number, STRETCH)
        drawn = draws(seed, account[:, None], (stretch * STRETCH)[:, None] + np.arange(STRETCH))
        types = np.searchsorted(usual[:-1], drawn[:, 0], side="right")
        for now in range(1, STRETCH):
            later = np.flatnonzero(step >= now)
            places = np.searchsorted(follows, types[later] + drawn[later, now], side="right")
            types[later] = np.minimum(places - types[later] * len(TYPES), len(TYPES) - 1)
        by_thief = draws(seed, account, stretch, -1) < stolen
        types[by_thief] = whole_draws(len(TYPES), seed, index[by_thief], -2)
        return {
            "account": account,
            "transaction": index,
            "type": texts.take(pa.array(types)),
        }

    return make
