"""The graph alone: bodies here are as small as the protocol allows."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest

from anabranch.errors import BuildError
from anabranch.graph import Graph, Output, Role, StreamType

NUMBERS = StreamType(pa.schema([("x", pa.int64())]))
TIMED = StreamType(pa.schema([("x", pa.int64())]), time=pa.int64())


@dataclass
class Body:
    """Gives one type on every output; refuses inputs when told to."""

    in_ports: int = 1
    out_ports: tuple[str, ...] = ("out",)
    gives: StreamType = NUMBERS
    refuses: bool = False

    def types(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        if self.refuses:
            raise BuildError(step, "something else", "this", "change it")
        return (self.gives,) * len(self.out_ports)


def source(graph: Graph, name: str, gives: StreamType = NUMBERS) -> Output:
    graph.add(name, Role.SOURCE, Body(0, gives=gives))
    return Output(name)


def operator(graph: Graph, name: str, *inputs: Output, outs: int = 1) -> Output:
    graph.add(name, Role.OPERATOR, Body(len(inputs), tuple(f"out{i}" for i in range(outs))))
    for port, stream in enumerate(inputs):
        graph.connect(stream, name, port)
    return Output(name)


def test_a_step_is_typed_as_soon_as_its_last_port_is_connected():
    graph = Graph()
    a, b = source(graph, "a"), source(graph, "b")
    graph.add("both", Role.OPERATOR, Body(2, refuses=True))
    graph.connect(a, "both", 0)
    with pytest.raises(BuildError, match="something else"):
        graph.connect(b, "both", 1)


def test_a_refused_stream_leaves_its_port_free():
    graph = Graph()
    timed, plain = source(graph, "timed", TIMED), source(graph, "plain")
    graph.add("both", Role.OPERATOR, Body(2))
    graph.connect(timed, "both", 0)
    with pytest.raises(BuildError, match="inputs ordered alike"):
        graph.connect(plain, "both", 1)
    graph.connect(timed, "both", 1)
    assert graph.resolve().order == ("timed", "plain", "both")


def test_a_refused_source_leaves_its_name_free():
    graph = Graph()
    with pytest.raises(BuildError, match="something else"):
        graph.add("a", Role.SOURCE, Body(0, refuses=True))
    source(graph, "a")
    assert graph.type_of(Output("a")) == NUMBERS


def test_a_discarded_step_leaves_no_type_behind():
    graph = Graph()
    source(graph, "a")
    graph.discard("a")
    source(graph, "a", TIMED)
    assert graph.type_of(Output("a")) == TIMED


def test_every_output_port_has_a_type():
    graph = Graph()
    operator(graph, "two", source(graph, "a"), outs=2)
    assert graph.resolve().types[Output("two", 1)] == NUMBERS


def test_streams_by_time_and_by_number_do_not_meet():
    graph = Graph()
    with pytest.raises(BuildError) as caught:
        operator(graph, "both", source(graph, "a", TIMED), source(graph, "b"))
    assert "step 'both'" in str(caught.value)
    assert "by int64 and by number" in str(caught.value)


def test_order_is_topological_and_otherwise_that_of_adding():
    graph = Graph()
    graph.add("late", Role.OPERATOR, Body(2))
    b, a = source(graph, "b"), source(graph, "a")
    middle = operator(graph, "middle", a)
    graph.connect(middle, "late", 0)
    graph.connect(b, "late", 1)
    assert graph.resolve().order == ("b", "a", "middle", "late")


def test_consumers_are_every_step_and_port_that_reads_a_stream():
    graph = Graph()
    a = source(graph, "a")
    operator(graph, "twice", a, a)
    operator(graph, "once", a)
    assert graph.consumers(a) == [("twice", 0), ("twice", 1), ("once", 0)]


def test_consumers_of_one_port_do_not_read_the_other():
    graph = Graph()
    operator(graph, "two", source(graph, "a"), outs=2)
    operator(graph, "side", Output("two", 1))
    assert graph.consumers(Output("two", 0)) == []


def test_successors_read_any_port():
    graph = Graph()
    operator(graph, "two", source(graph, "a"), outs=2)
    operator(graph, "side", Output("two", 1))
    operator(graph, "main", Output("two", 0))
    assert graph.successors("two") == [("main", 0), ("side", 0)]


def test_a_cycle_names_a_step_on_it():
    graph = Graph()
    a = source(graph, "a")
    graph.add("x", Role.OPERATOR, Body(2))
    y = operator(graph, "y", Output("x"))
    graph.connect(a, "x", 0)
    graph.connect(y, "x", 1)
    operator(graph, "behind", y)
    with pytest.raises(BuildError, match="cycle") as caught:
        graph.resolve()
    assert caught.value.step in ("x", "y")


def test_a_cycle_lists_only_the_steps_on_it():
    graph = Graph()
    a = source(graph, "a")
    graph.add("x", Role.OPERATOR, Body(2))
    y = operator(graph, "y", Output("x"))
    graph.connect(a, "x", 0)
    graph.connect(y, "x", 1)
    operator(graph, "behind", y)
    with pytest.raises(BuildError) as caught:
        graph.resolve()
    assert "behind" not in caught.value.got


def test_a_step_that_reads_itself_is_a_cycle():
    graph = Graph()
    source(graph, "a")
    graph.add("x", Role.OPERATOR, Body(1))
    graph.connect(Output("x"), "x")
    with pytest.raises(BuildError, match="step 'x': expected a graph without cycles"):
        graph.resolve()


def test_an_open_port_is_named():
    graph = Graph()
    graph.add("both", Role.OPERATOR, Body(2))
    graph.connect(source(graph, "a"), "both", 0)
    with pytest.raises(BuildError, match="step 'both': expected input port 1 connected"):
        graph.resolve()


def test_a_graph_without_a_source_is_refused():
    with pytest.raises(BuildError, match="at least one source"):
        Graph().resolve()


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_step_needs_a_name(name):
    with pytest.raises(BuildError, match="non-empty step name"):
        Graph().add(name, Role.SOURCE, Body(0))


def test_a_name_is_used_once():
    graph = Graph()
    source(graph, "a")
    with pytest.raises(BuildError, match="step 'a': expected a name used once"):
        source(graph, "a")


def wrong_connections():
    return {
        "no such target": (Output("a"), "nobody", 0, "nobody"),
        "no such source": (Output("nobody"), "x", 0, "nobody"),
        "no such output": (Output("a", 1), "x", 0, r"output port in \['out'\]"),
        "no such input": (Output("a"), "x", 2, r"input port in 0\.\.0"),
        "negative input": (Output("a"), "x", -1, r"input port in 0\.\.0"),
    }


@pytest.mark.parametrize("case", sorted(wrong_connections()))
def test_a_wrong_connection_says_what_exists(case):
    stream, target, port, words = wrong_connections()[case]
    graph = Graph()
    source(graph, "a")
    graph.add("x", Role.OPERATOR, Body(1))
    with pytest.raises(BuildError, match=words):
        graph.connect(stream, target, port)


def test_a_port_takes_one_stream():
    graph = Graph()
    a, b = source(graph, "a"), source(graph, "b")
    operator(graph, "x", a)
    with pytest.raises(BuildError, match="put a union before it"):
        graph.connect(b, "x", 0)
