import io

import pyarrow as pa
import pytest

from anabranch.io import console
from anabranch.io.two_phase_commit import Transactions
from tests.io.going_on import GoingOn


@pytest.fixture
def screen():
    return io.StringIO()


def show(console, *batches):
    sink = Transactions(console)
    sink.open(batches[0].schema)
    for version, batch in enumerate(batches):
        sink.write(batch)
        sink.commit(version)


def test_columns_are_aligned_numbers_to_the_right(screen):
    batch = pa.record_batch({"n": [1, 100], "word": ["a", None], "share": [0.5, 12.25]})
    show(console(stream=screen), batch)
    assert screen.getvalue() == ("  n  word  share\n  1  a       0.5\n100  null  12.25\n")


def test_the_header_comes_again_only_when_a_column_widens(screen):
    show(console(stream=screen), *(pa.record_batch({"word": [w]}) for w in ("a", "b", "longer")))
    assert screen.getvalue().split("\n") == ["word", "a", "b", "word", "longer", ""]


def test_a_limit_stops_the_printing_and_says_so_once(screen):
    batch = pa.record_batch({"x": [1, 2]})
    show(console(limit=3, stream=screen), batch, batch, batch)
    assert screen.getvalue().splitlines() == [
        "x",
        "1",
        "2",
        "1",
        "... more rows than the limit of 3",
    ]


def test_a_limit_that_fits_says_nothing(screen):
    show(console(limit=2, stream=screen), pa.record_batch({"x": [1, 2]}))
    assert screen.getvalue().splitlines() == ["x", "1", "2"]


def test_rows_are_printed_when_committed(screen):
    batch = pa.record_batch({"x": [1]})
    sink = GoingOn(console(stream=screen))
    sink.open(batch.schema)
    sink.write(batch)
    assert screen.getvalue() == ""
    sink.open(batch.schema, 0)
    sink.write(batch)
    sink.commit(0)
    sink.close()
    assert screen.getvalue() == ""


def test_a_row_is_a_line_whatever_is_in_it(screen):
    show(console(stream=screen), pa.record_batch({"text": ["two\nlines"]}))
    assert screen.getvalue().splitlines()[1] == r"two\nlines"


def test_the_standard_output_is_the_default(capsys):
    show(console(), pa.record_batch({"x": [1]}))
    assert capsys.readouterr().out == "x\n1\n"
