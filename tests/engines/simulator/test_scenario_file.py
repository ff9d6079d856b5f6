import json
from dataclasses import asdict

import pytest

from anabranch.engines.simulator.scenario import (
    JOKER_SWITCH,
    Drift,
    Load,
    Scenario,
    Straggler,
    SwitchCost,
    read_scenario,
)
from anabranch.errors import PlanError

FULL = Scenario(
    loads=(Load(((0.0, 100.0), (5.0, None)), "lines"), Load(((0.0, 1.0), (2.0, 9.0)), None, True)),
    drifts=(Drift("parse", 2.0, 3.0, 1.0, "selectivity"),),
    stragglers=(Straggler(3.0, 1.0, 2.0, node=1), Straggler(2.0, region="count", replica=0)),
    skew={"count": 0.8},
    noise=0.1,
    switch=SwitchCost(5.0, 0.1, 0.2, 1000.0, 0.3, 2.0),
    queue_tuples=100,
)


def scenario_text(scenario: Scenario) -> str:
    usual = asdict(Scenario())
    data = {name: value for name, value in asdict(scenario).items() if value != usual[name]}
    if "stragglers" in data:
        data["stragglers"] = [
            {name: value for name, value in each.items() if value is not None}
            for each in data["stragglers"]
        ]
    return json.dumps(data, indent=2) + "\n"


@pytest.mark.parametrize("scenario", [Scenario(), FULL])
def test_a_scenario_is_read_back_as_it_was_written(scenario):
    assert read_scenario(scenario_text(scenario)) == scenario


def test_the_cost_of_a_switch_has_presets():
    assert read_scenario('{"switch": "joker"}').switch == JOKER_SWITCH


@pytest.mark.parametrize(
    ("data", "where", "got"),
    [
        ({"lods": []}, "file", "'lods'"),
        ({"noise": -1}, "file.noise", "-1"),
        ({"loads": [{"points": [[0]]}]}, "loads[0].points[0]", "[0]"),
        ({"loads": [{"points": [[0, "x"]]}]}, "loads[0].points[0][1]", '"x"'),
        ({"loads": [{"points": [[0, 1]], "linear": 3}]}, "loads[0].linear", "3"),
        ({"drifts": [{"operator": "a"}]}, "drifts[0]", "none"),
        ({"drifts": [{"operator": "a", "factor": 0}]}, "drifts[0].factor", "0"),
        ({"stragglers": [{"factor": 2, "socket": -1}]}, "stragglers[0].socket", "-1"),
        ({"skew": {"a": "much"}}, "file.skew.a", '"much"'),
        ({"skew": ["a"]}, "file.skew", '["a"]'),
        ({"switch": 3}, "file.switch", "3"),
        ({"switch": "tomorrow"}, "file.switch", '"tomorrow"'),
        ({"switch": {"pause": 3}}, "file.switch", "'pause'"),
        ({"step_s": 0}, "file.step_s", "0"),
    ],
)
def test_errors_name_the_field_and_what_it_held(data, where, got):
    with pytest.raises(PlanError) as caught:
        read_scenario(json.dumps(data), "file")
    assert (caught.value.subject.name, caught.value.got) == (where, got)
