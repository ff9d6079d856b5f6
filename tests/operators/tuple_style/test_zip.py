import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import BuildError, SchemaError
from anabranch.graph import StreamType
from anabranch.operators.tuple_style.zip import zip_streams
from tests.operators.driving_ports import drive, jumbo, ways

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
EVENT = st.tuples(st.integers(0, 2), st.sampled_from(["a", "b", "c"]))


@given(st.lists(EVENT, max_size=40), st.booleans(), ways())
def test_the_nth_tuples_of_all_ports_go_together_however_it_is_run(events, keyed, way):
    sides, waiting, wanted = [[], [], []], {}, []
    for seq, (port, key) in enumerate(events):
        sides[port].append(((seq, 0, seq, 0, 0), (key, seq)))
        queues = waiting.setdefault(key if keyed else None, [[], [], []])
        queues[port].append((key, seq))
        if all(queues):
            (k1, a), (k2, b), (k3, c) = (queue.pop(0) for queue in queues)
            made = {"k": k1, "v": a, "v_2": b, "v_3": c}
            wanted.append((seq, made if keyed else {**made, "k_2": k2, "k_3": k3}))
    ran = drive(zip_streams(3, "k" if keyed else None), [jumbo(SCHEMA, s) for s in sides], way)
    assert [(position[0], row) for position, row in ran.ports[0]] == wanted


def test_a_name_that_is_taken_gets_the_number_of_its_port():
    types = (StreamType(SCHEMA), StreamType(SCHEMA))
    assert zip_streams(2).types("b", types)[0].schema.names == ["k", "v", "k_2", "v_2"]
    assert zip_streams(2, "k").types("b", types)[0].schema.names == ["k", "v", "v_2"]


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: zip_streams(1), BuildError, "at least 2 ports"),
        (lambda: zip_streams(2, "x").types("b", (StreamType(SCHEMA),) * 2), SchemaError, "'x'"),
        (
            lambda: zip_streams(2, "k").types(
                "b", (StreamType(SCHEMA), StreamType(pa.schema([("k", pa.int64())])))
            ),
            SchemaError,
            "cast it",
        ),
        (
            lambda: zip_streams(2).types(
                "b", (StreamType(pa.schema([("v", pa.int64()), ("v_2", pa.int64())])),) * 2
            ),
            SchemaError,
            "'v_2'",
        ),
    ],
)
def test_what_cannot_be_put_together_is_said_when_the_graph_is_built(make, error, says):
    with pytest.raises(error, match=says):
        make()
