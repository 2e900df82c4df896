"""Named values do what typing's NamedTuple does, without typing, on every Python that a node may have."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from mpsfleet.tuples import NamedTuple

SOURCES = str(Path(__file__).resolve().parent.parent / "src")


class Place(NamedTuple):
    """A class as the product has them: defaults, a property and a method of its own."""

    name: str
    size: int = 1
    parts: tuple[str, ...] = ()

    @property
    def is_small(self) -> bool:
        return self.size < 2

    def renamed(self, name: str) -> Place:
        return self._replace(name=name)


def test_a_value_is_made_by_place_by_name_and_by_default() -> None:
    assert Place("a") == Place(name="a") == Place("a", 1, parts=()) == ("a", 1, ())
    assert hash(Place("a")) == hash(("a", 1, ()))


def test_fields_properties_and_methods_are_there() -> None:
    place = Place("a", 3)
    name, size, _ = place
    assert (place.name, place.size, place.is_small, name, size) == ("a", 3, False, "a", 3)
    assert place.renamed("b") == Place("b", 3)
    assert Place.__doc__ is not None
    assert Place.__doc__.startswith("A class as")


def test_what_typing_offers_beside_the_fields_is_there() -> None:
    assert Place._fields == ("name", "size", "parts")
    assert Place._field_defaults == {"size": 1, "parts": ()}
    assert Place("a")._asdict() == {"name": "a", "size": 1, "parts": ()}
    assert Place._make(["a", 2, ("x",)]) == Place("a", 2, ("x",))
    assert repr(Place("a")) == "Place(name='a', size=1, parts=())"


@pytest.mark.parametrize(
    ("values", "named", "sentence"),
    [
        ((), {}, "Place lacks name"),
        (("a", 1, (), 0), {}, "Place takes 3 values, not 4"),
        (("a",), {"sise": 2}, "Place has no field sise"),
        (("a",), {"name": "b"}, "Place has no field name, or it is given twice"),
        (("a", 1, ()), {"size": 2}, "Place has no field size, or it is given twice"),
    ],
    ids=["missing", "too many", "unknown", "twice", "twice and whole"],
)
def test_a_wrong_value_is_refused(values: tuple[object, ...], named: dict[str, object], sentence: str) -> None:
    made: type = Place
    with pytest.raises(TypeError, match=sentence):
        made(*values, **named)


def test_an_unknown_field_is_not_replaced() -> None:
    with pytest.raises(TypeError, match="Place has no field sise"):
        Place("a")._replace(sise=2)  # type: ignore[call-arg]


def test_a_value_takes_no_further_attribute_and_keeps_its_fields() -> None:
    place = Place("a")
    with pytest.raises(AttributeError):
        place.more = 1  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        place.name = "b"  # type: ignore[misc]


def test_a_copy_is_of_the_same_class() -> None:
    place = Place("a", 2)
    for each in (copy.copy(place), copy.deepcopy(place), pickle.loads(pickle.dumps(place))):  # noqa: S301  # our own
        assert (type(each), each) == (Place, place)


def test_an_audit_loads_no_typing() -> None:
    asking = (
        f"import sys; sys.path.insert(0, {SOURCES!r}); "
        "import mpsfleet.cli, mpsfleet.node.audit, mpsfleet.node.render.json, mpsfleet.node.render.text; "
        "print('typing' in sys.modules)"
    )
    done = subprocess.run((sys.executable, "-IS", "-c", asking), capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")
