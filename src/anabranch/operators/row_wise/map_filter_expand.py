"""The three batch shapes of stateless operators: map, filter, expand.

Each keeps lineage by construction: a map returns as many rows as came in, a filter a mask, an
expand rows with the index of the row each came from. Columns named in `keeps` are carried by the
runtime, not by the author's function, so that the planner may rely on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.columns.rows import exact_rows
from anabranch.columns.schemas import SchemaLike, column_names, columns_of, schema, to_batch
from anabranch.columns.type_matching import shortened
from anabranch.errors import BuildError, OperatorError, Subject
from anabranch.graph import StreamType
from anabranch.operators.base import (
    Kernel,
    KernelContext,
    OnError,
    Outputs,
    describe_row,
    failure,
    on_error_of,
)
from anabranch.operators.decorator import Decorated, Given, decorator
from anabranch.state.positions import Expansion, Ints, Jumbo, Positions, Root

BatchFunction = Callable[[pa.RecordBatch], Any]
ERROR = pa.field("error", pa.string())
COLUMNS = "the columns that it makes, as in out='name: type'"


class BatchOperator(Decorated[Given, Any]):
    """A stateless operator on whole batches; the subclasses are its shapes."""

    def __init__(
        self,
        function: Callable[Given, Any],
        out: SchemaLike = None,
        keeps: str | Sequence[str] = (),
        on_error: OnError | str = OnError.FAIL,
    ) -> None:
        """Describe; nothing runs."""
        super().__init__(function)
        about = Subject("operator", self.__name__)
        self.out = schema(out, about)
        self.kept_names = keeps if keeps == "*" else column_names(keeps, "keeps", about)
        if not self.out.names and not self.kept_names:
            raise BuildError(about, "columns in out= or keeps=", "none", f"declare {COLUMNS}")
        self.on_error = on_error_of(about, on_error)
        if self.on_error is OnError.SIDE:
            self.out_ports = ("out", "errors")

    def keeps(self, given: pa.Schema) -> frozenset[str]:
        """The declared columns, unless a column of the same name is produced."""
        kept = given.names if self.kept_names == "*" else self.kept_names
        return frozenset(kept) - frozenset(self.out.names)

    def outputs(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """Kept columns in input order, then the produced ones."""
        given = inputs[0]
        if self.kept_names != "*":
            columns_of(step, tuple(self.kept_names), given.schema)
        kept = self.keeps(given.schema)
        if given.changelog is not None and not kept.issuperset(given.changelog):
            raise BuildError(
                step,
                f"the columns {list(given.changelog)} kept, by which a row replaces another",
                f"keeps={sorted(kept)}",
                "name them in keeps=",
            )
        fields = [f for f in given.schema if f.name in kept] + list(self.out)
        if not fields:
            raise BuildError(step, "at least one output column", "none", "declare out= or keeps=")
        changelog = given.changelog
        main = StreamType(pa.schema(fields), given.time, changelog)
        if self.on_error is OnError.SIDE:
            return (main, StreamType(given.schema.append(ERROR), given.time, changelog))
        return (main,)

    def run(self, step: str, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Ints | None]:
        """Call the author's function; give produced columns and the parent of each row."""
        raise NotImplementedError

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return BatchKernel(context, self)


class Map(BatchOperator[[pa.RecordBatch]]):
    """As many rows as came in."""

    accepts_changes = True

    def run(self, step: str, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Ints | None]:
        """Check the row count; parents are the rows themselves."""
        return to_batch(step, self.function(batch), self.out, batch.num_rows), None


class Filter(BatchOperator[[pa.RecordBatch]]):
    """The rows a mask keeps, whole."""

    def __init__(self, function: BatchFunction, on_error: OnError | str = OnError.FAIL) -> None:
        """Describe; nothing runs."""
        super().__init__(function, None, "*", on_error)

    def run(self, step: str, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Ints | None]:
        """A mask becomes the indexes it keeps; null means no."""
        mask = _to_mask(step, self.function(batch), batch.num_rows)
        nothing = pa.RecordBatch.from_arrays([], schema=self.out)
        return nothing, np.flatnonzero(mask).astype(np.int64)


class Expand(BatchOperator[[pa.RecordBatch]]):
    """Any number of rows for each row, with the index of the row each came from."""

    def levels(self, depth: int) -> int:
        """One more: which of the rows of its parent."""
        return depth + 1

    def run(self, step: str, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Ints | None]:
        """Check the parents."""
        result = self.function(batch)
        if not isinstance(result, tuple) or len(result) != 2:
            raise OperatorError(
                step,
                "(columns, parents)",
                type(result).__name__,
                "return the rows and the index of each row's parent",
            )
        columns = to_batch(step, result[0], self.out, None)
        return columns, to_parents(step, result[1], batch.num_rows, columns)


class BatchKernel(Kernel):
    """Runs any of the three shapes."""

    def __init__(self, context: KernelContext, operator: BatchOperator[...]) -> None:
        """A running copy."""
        super().__init__(context)
        self._operator = operator

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """One call of the author's function per jumbo tuple, more only when it raises."""
        return guarded(self._operator, self.context, inputs[0], self._run)

    def _run(self, source: Jumbo) -> Jumbo:
        columns, parents = self._operator.run(self.context.step, source.batch)
        expands = isinstance(self._operator, Expand)
        return attach(self._operator, self.context, source, columns, parents, expands=expands)


def guarded(
    operator: BatchOperator[...],
    context: KernelContext,
    jumbo: Jumbo | None,
    run: Callable[[Jumbo], Jumbo],
) -> Outputs:
    """Run the author's code on a batch and do with rows that raise what the policy says.

    `run` must leave no trace when it raises. A batch without a bad row costs one call.
    """
    if jumbo is None or not len(jumbo):
        return [None] * len(context.outputs)
    good: list[Jumbo] = []
    bad: list[tuple[int, str]] = []
    # The whole batch at once; when that raises, halves, until rows that raise are alone. A loop,
    # since a local function that calls itself is a cycle: the batch that it refers to would stay
    # in memory until the garbage collector looks at its oldest objects, which it seldom does.
    ranges = [(0, len(jumbo))]
    while ranges:
        start, stop = ranges.pop()
        try:
            good.append(run(jumbo.slice(start, stop)))
        except OperatorError:
            raise
        except Exception as error:
            if stop - start > 1:
                middle = (start + stop) // 2
                ranges += [(middle, stop), (start, middle)]
            elif operator.on_error is OnError.FAIL:
                raise failure(context.step, error, describe_row(jumbo.batch, start)) from error
            else:
                bad.append((start, f"{type(error).__name__}: {error}"))
    context.counters.skip(jumbo, bad)
    outputs: Outputs = [Jumbo.concat(good) if good else None]
    if operator.on_error is OnError.SIDE:
        outputs.append(rejected(operator, context, jumbo, bad))
    return outputs


def attach(
    operator: BatchOperator[...],
    context: KernelContext,
    source: Jumbo,
    columns: pa.RecordBatch,
    parents: Ints | None,
    *,
    expands: bool,
) -> Jumbo:
    """Kept columns and positions beside the produced columns; no copy where every row stays."""
    kept = operator.keeps(context.inputs[0].schema)
    names = [n for n in context.inputs[0].schema.names if n in kept]
    positions: Positions
    if parents is None or (not expands and len(parents) == len(source)):
        positions, carried = source.positions, [source.batch.column(n) for n in names]
    else:
        if expands and (parents[1:] < parents[:-1]).any():
            order = np.argsort(parents, kind="stable")
            parents, columns = parents[order], columns.take(pa.array(order))
        index = pa.array(parents)
        carried = [source.batch.column(n).take(index) for n in names]
        if expands:
            positions = Expansion(source.positions, parents)
        else:
            positions = source.positions.take(parents)
    arrays = [*carried, *columns.columns]
    batch = pa.RecordBatch.from_arrays(arrays, schema=context.outputs[0].schema)
    return Jumbo(batch, positions)


def rejected(
    operator: BatchOperator[...], context: KernelContext, jumbo: Jumbo, bad: list[tuple[int, str]]
) -> Jumbo | None:
    """The tuples on which the author's code raised, each with what it raised."""
    if not bad:
        return None
    chosen = jumbo.take(np.array([row for row, _ in bad], dtype=np.int64))
    batch = pa.RecordBatch.from_arrays(
        [*chosen.batch.columns, pa.array([m for _, m in bad], pa.string())],
        schema=context.outputs[1].schema,
    )
    return Jumbo(batch, chosen.positions.pad(operator.levels(context.depth)))


def _to_mask(step: str, mask: Any, rows: int) -> npt.NDArray[np.bool_]:
    if isinstance(mask, pa.ChunkedArray):
        mask = mask.combine_chunks()
    if isinstance(mask, pa.Array):
        if mask.type != pa.bool_():
            raise OperatorError(step, "a boolean mask", str(mask.type), "return true or false")
        mask = mask.fill_null(False).to_numpy(zero_copy_only=False)
    array = np.asarray(mask)
    if array.dtype != np.bool_:
        raise OperatorError(step, "a boolean mask", str(array.dtype), "return true or false")
    if array.shape != (rows,):
        raise OperatorError(
            step, f"a mask of {rows} rows", f"{array.shape}", "return one truth value per row"
        )
    return array


def to_parents(step: str, parents: Any, rows: int, made: pa.RecordBatch) -> Ints:
    """Parent indexes as the author gave them, one for each row made, within the rows given."""
    if isinstance(parents, pa.ChunkedArray):
        parents = parents.combine_chunks()
    if isinstance(parents, pa.Array):
        parents = parents.to_numpy(zero_copy_only=False)
    array = np.asarray(parents)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise OperatorError(step, "integer parents", str(array.dtype), "return row indexes")
    array = array.astype(np.int64, copy=False)
    if made.schema.names and len(array) != made.num_rows:
        raise OperatorError(
            step, f"{made.num_rows} parents", f"{len(array)}", "give one parent index per row"
        )
    if array.size and (array.min() < 0 or array.max() >= rows):
        raise OperatorError(
            step,
            f"parents in 0..{rows - 1}",
            f"{int(array.min())}..{int(array.max())}",
            "refer to rows of this batch",
        )
    return array


class FlatMap(Expand):
    """Any number of rows (dicts) for each row (a dict), made one by one in Python."""

    def run(self, step: str, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Ints | None]:
        """Call the author's function row by row; a wrong result of it is no bad row."""
        rows: list[Any] = []
        parents: list[int] = []
        for index, row in enumerate(exact_rows(batch)):
            made = self.function(row)
            if isinstance(made, Mapping) or not isinstance(made, Iterable):
                raise OperatorError(
                    step,
                    "rows, as in [{'column': value, …}, …]",
                    shortened(made),
                    "return a list of dicts, which may be empty",
                )
            rows.extend(made)
            parents.extend(repeat(index, len(rows) - len(parents)))
        columns = to_batch(step, self._columns(step, rows), self.out, None)
        return columns, np.array(parents, np.int64)

    def _columns(self, step: str, rows: list[Any]) -> dict[str, list[Any]]:
        names = self.out.names
        try:
            if {len(row) for row in rows} <= {len(names)}:
                return {name: [row[name] for row in rows] for name in names}
        except (KeyError, TypeError):
            pass
        wrong = next(r for r in rows if not isinstance(r, Mapping) or r.keys() != {*names})
        raise OperatorError(
            step,
            f"rows with the columns {names}",
            f"{list(wrong)}" if isinstance(wrong, Mapping) else shortened(wrong),
            "give every column that out= declares, and no other",
        )


@decorator('@ab.map(out="name: type", keeps="column")')
def map(
    function: BatchFunction,
    /,
    *,
    out: SchemaLike = None,
    keeps: str | Sequence[str] = (),
    on_error: OnError | str = OnError.FAIL,
) -> Map:
    """Make a function of a batch a map: rows in = rows out.

    Example:
        >>> import pyarrow.compute as pc
        >>> @map(out="length: int32", keeps="word")
        ... def measure(batch):
        ...     return {"length": pc.utf8_length(batch["word"])}
        >>> measure.out.names
        ['length']
    """
    return Map(function, out, keeps, on_error)


@decorator("@ab.filter, or @ab.filter(on_error=…)")
def filter(function: BatchFunction, /, *, on_error: OnError | str = OnError.FAIL) -> Filter:
    """Make a function from a batch to a mask a filter.

    Example:
        >>> import pyarrow.compute as pc
        >>> @filter
        ... def long(batch):
        ...     return pc.greater(pc.utf8_length(batch["word"]), 9)
        >>> long.on_error.value
        'fail'
    """
    return Filter(function, on_error)


@decorator('@ab.expand(out="name: type", keeps="column")')
def expand(
    function: BatchFunction,
    /,
    *,
    out: SchemaLike = None,
    keeps: str | Sequence[str] = (),
    on_error: OnError | str = OnError.FAIL,
) -> Expand:
    """Make a function from a batch to (columns, parents) an expand."""
    return Expand(function, out, keeps, on_error)


def flat_map(
    function: Callable[[dict[str, Any]], Iterable[dict[str, Any]]],
    *,
    out: SchemaLike = None,
    keeps: str | Sequence[str] = (),
    on_error: OnError | str = OnError.FAIL,
) -> FlatMap:
    """A function from one row (a dict) to rows (dicts), run row by row in Python.

    Args:
        function: From a row to any number of rows, each with the columns of `out` and no other.
        out: The columns that it makes.
        keeps: Columns to carry along, "*" for all.
        on_error: What happens to a row on which the function raises: `fail`, `skip` or `side`.

    Example:
        >>> letters = flat_map(lambda row: [{"c": c} for c in row["word"]], out="c: string")
        >>> letters.out.names
        ['c']
    """
    return FlatMap(function, out, keeps, on_error)
