import json
import re

from anabranch.reproduce.stepwise.page import page, pictures, text
from tests.reproduce.stepwise.scripted import reproduction


def test_every_picture_of_the_page_is_drawn_and_every_drawn_one_shown():
    found = reproduction()
    shown = re.findall(r"\]\(([^)]+\.svg)\)", page(found))
    assert sorted(shown) == sorted(pictures(found))
    assert len(shown) == 6 + 2 + 1 + 3


def test_text_and_page_say_how_claims_came_out_and_why_numbers_differ():
    found = reproduction()
    assert text(found).startswith("26 claims: ")
    assert "22 reproduced" in text(found)
    assert "The costs of operators are not published" in page(found)


def test_the_numbers_are_an_object_for_json():
    told = json.loads(json.dumps(reproduction().as_object()))
    assert told["paper"] == "stepwise"
    assert told["figure_11"]["WC"]["stepwise"]["rounds"][0]["rates"] == [150, 150]
