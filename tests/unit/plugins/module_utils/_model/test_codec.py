# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Dataclasses are read from JSON and written back as they were, and what has another form is named with its path."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, Json, ShapeError, decode, encode


@dataclasses.dataclass(frozen=True)
class Wheel:
    inches: int
    brand: t.Optional[str]


@dataclasses.dataclass(frozen=True)
class Bicycle:
    name: str
    wheels: t.Tuple[Wheel, ...]
    weight_kg: float
    notes: Json
    prices: t.Mapping[str, int]
    is_sold: bool
    owner: t.Optional[str] = None
    lock: t.Union[Wheel, Absent, None] = ABSENT
    extra: t.Mapping[str, Json] = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        if len(self.wheels) > 2:
            raise ShapeError("wheels", "at most two")


def bicycle(**changes: object) -> t.Dict[str, t.Any]:
    wheel = {"inches": 28, "brand": None}
    return {"name": "blue", "wheels": [wheel, wheel], "weight_kg": 12.5, "notes": {"any": [1, None]}, "prices": {"eur": 300}, "is_sold": True, **changes}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"owner": "Ada"},
        {"lock": None},
        {"lock": {"inches": 1, "brand": "x"}},
        {"of_a_later_version": {"list": [1], "text": "two"}},
        {"wheels": []},
        {"weight_kg": 12},
    ],
)
def test_a_decoded_document_is_encoded_unchanged(changes: t.Dict[str, t.Any]) -> None:
    given = bicycle(**changes)
    written = encode(decode(Bicycle, given))
    assert written == given
    assert type(written["weight_kg"]) is type(given["weight_kg"])


def test_a_missing_key_with_a_default_gets_it() -> None:
    read = decode(Bicycle, bicycle())
    assert (read.owner, read.lock) == (None, ABSENT)
    assert not read.lock


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": 1}, "bike.name must be text"),
        ({"wheels": {}}, "bike.wheels must be a list"),
        ({"wheels": [{"inches": 28, "brand": None}, {"inches": -1, "brand": None}]}, "bike.wheels[1].inches must be a whole number from 0 to 2**64 - 1"),
        ({"wheels": [{"inches": True, "brand": None}]}, "bike.wheels[0].inches must be a whole number"),
        ({"wheels": [{"inches": 2**64, "brand": None}]}, "bike.wheels[0].inches must be a whole number"),
        ({"wheels": [{"inches": 28, "brand": 5}]}, "bike.wheels[0].brand must be text, or null"),
        ({"wheels": [{"inches": 28}]}, "bike.wheels[0].brand must be there"),
        ({"wheels": [{"inches": 28, "brand": None, "spokes": 36}]}, "bike.wheels[0].spokes must be a known key"),
        ({"wheels": [None]}, "bike.wheels[0] must be a JSON object"),
        ({"wheels": [{"inches": 1, "brand": None}] * 3}, "bike.wheels must be at most two"),
        ({"weight_kg": float("nan")}, "bike.weight_kg must be a number"),
        ({"weight_kg": float("inf")}, "bike.weight_kg must be a number"),
        ({"weight_kg": 10**400}, "bike.weight_kg must be a number"),
        ({"weight_kg": False}, "bike.weight_kg must be a number"),
        ({"is_sold": 1}, "bike.is_sold must be true or false"),
        ({"prices": {"eur": "much"}}, "bike.prices.eur must be a whole number"),
        ({"prices": {5: 1}}, "bike.prices must be a JSON object"),
        ({"owner": None}, "bike.owner must be text"),
        ({"lock": "none"}, "bike.lock must be a JSON object, or null"),
    ],
)
def test_a_document_of_another_form_is_refused_with_its_path(changes: t.Dict[str, t.Any], message: str) -> None:
    with pytest.raises(ShapeError) as raised:
        decode(Bicycle, bicycle(**changes), "bike")
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("value", [None, [], "text", 5, {1: 2}])
def test_a_document_that_is_not_an_object_is_refused(value: object) -> None:
    with pytest.raises(ShapeError, match="the document must be a JSON object"):
        decode(Bicycle, value)


def test_an_encoded_document_shares_no_container_with_the_dataclass() -> None:
    read = decode(Bicycle, bicycle(further=[1]))
    encode(read)["further"].append(2)
    encode(read)["notes"]["any"].append(2)
    assert encode(read) == bicycle(further=[1])


@dataclasses.dataclass(frozen=True)
class Trip:
    KEYS: t.ClassVar[t.Mapping[str, str]] = {"source": "from", "destination": "to", "passenger": "with"}
    source: str
    destination: str
    passenger: t.Union[str, Absent] = ABSENT
    extra: t.Mapping[str, Json] = dataclasses.field(default_factory=dict)


def test_a_field_can_have_another_key_than_its_name() -> None:
    given = {"from": "Rome", "to": "Paris", "source": "a key of its own"}
    read = decode(Trip, given)
    assert (read.source, read.destination, read.extra) == ("Rome", "Paris", {"source": "a key of its own"})
    assert (encode(read), read.passenger) == (given, ABSENT)
    assert decode(Trip, {**given, "with": "Ada"}).passenger == "Ada"
    with pytest.raises(ShapeError, match="to must be there"):
        decode(Trip, {"from": "Rome"}, "trip")


@dataclasses.dataclass(frozen=True)
class Note:
    IS_LENIENT: t.ClassVar[bool] = True
    at: str
    by: t.Optional[str] = None
    pages: t.Union[int, Absent, None] = ABSENT
    extra: t.Mapping[str, Json] = dataclasses.field(default_factory=dict)


def test_a_lenient_dataclass_keeps_values_of_another_form() -> None:
    given = {"at": "now", "by": 5, "pages": "many", "further": 1}
    read = decode(Note, given)
    assert (read.by, read.pages, read.extra) == (None, ABSENT, {"by": 5, "pages": "many", "further": 1})
    assert encode(read) == given
    assert encode(decode(Note, {"at": "now", "by": "me", "pages": None})) == {"at": "now", "by": "me", "pages": None}


def test_a_lenient_dataclass_refuses_a_required_value_of_another_form() -> None:
    with pytest.raises(ShapeError, match="at must be text"):
        decode(Note, {"at": 5, "by": 5})


@dataclasses.dataclass(frozen=True)
class Stage:
    IS_LENIENT: t.ClassVar[bool] = True
    NEEDED: t.ClassVar[t.Tuple[str, ...]] = ("km",)
    km: t.Optional[int] = None
    town: t.Optional[str] = None
    extra: t.Mapping[str, Json] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Tour:
    LAZY: t.ClassVar[t.Tuple[str, ...]] = ("stages",)
    name: str
    stages: t.Tuple[Stage, ...]
    extra: t.Mapping[str, Json] = dataclasses.field(default_factory=dict)


@pytest.mark.parametrize("further", [{}, {"town": 5}, {"hotel": "none"}])
def test_a_lazy_list_is_what_it_would_be_if_it_were_read_at_once(further: t.Dict[str, t.Any]) -> None:
    given = {"name": "north", "stages": [{"km": 80, "town": "Rome"}, {"km": 0, **further}]}
    assert encode(decode(Tour, given)) == given, "before it was used"
    read = decode(Tour, given)
    assert read.stages == (Stage(80, "Rome"), decode(Stage, given["stages"][1]))
    assert encode(read) == given, "after it was used"
    assert dataclasses.replace(read, name="south") == Tour("south", read.stages)
    assert read == decode(Tour, given)


def test_what_was_written_of_a_lazy_list_shares_no_container_with_the_dataclass() -> None:
    read = decode(Tour, {"name": "north", "stages": [{"km": 80}]})
    encode(read)["stages"][0]["km"] = 90
    encode(read)["stages"].append(None)
    assert read.stages == (Stage(80),)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([{"town": "Rome"}], r"stages\[0\].km must be there"),
        ([{"km": 1}, {"km": None}], r"stages\[1\].km must be a whole number"),
        ([{"km": -1}], r"stages\[0\].km must be a whole number"),
        ([{"km": True}], r"stages\[0\].km must be a whole number"),
        ([{"km": 1, 5: "x"}], r"stages\[0\] must be a JSON object"),
        ([None], r"stages\[0\] must be a JSON object"),
        ({"km": 1}, "stages must be a list"),
    ],
)
def test_another_form_in_a_lazy_list_is_found_when_the_object_is_read(stages: object, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        decode(Tour, {"name": "north", "stages": stages})


@dataclasses.dataclass(frozen=True)
class Checked:
    number: int

    def check(self) -> None:
        if self.number == 13:
            raise ShapeError("number", "another")


@dataclasses.dataclass(frozen=True)
class Counted:
    number: t.Optional[int] = None


@pytest.mark.parametrize("kind", [Checked, Counted, t.Tuple[Checked, ...], t.Tuple[int, ...], str], ids=str)
def test_a_lazy_field_that_could_hide_another_form_is_an_error_of_the_program(kind: t.Any) -> None:
    odd = dataclasses.make_dataclass("Odd", [("number", kind)], namespace={"LAZY": ("number",)}, frozen=True)
    with pytest.raises(TypeError, match="cannot be lazy"):
        decode(odd, {"number": []})


@dataclasses.dataclass(frozen=True)
class Journey:
    LAZY: t.ClassVar[t.Tuple[str, ...]] = ("bicycle", "best", "last")
    bicycle: Wheel
    best: Stage
    last: t.Union[Stage, Absent, None] = ABSENT


@pytest.mark.parametrize("further", [{}, {"last": None}, {"last": {"km": 5, "town": 7}}, {"last": {"km": 5, "of_a_later_version": [1]}}])
def test_a_lazy_object_is_what_it_would_be_if_it_were_read_at_once(further: t.Dict[str, t.Any]) -> None:
    given = {"bicycle": {"inches": 28, "brand": None}, "best": {"km": 80}, **further}
    assert encode(decode(Journey, given)) == given, "before it was used"
    read = decode(Journey, given)
    assert (read.bicycle, read.best.km) == (Wheel(28, None), 80)
    assert read.last == (decode(Stage, given["last"]) if given.get("last") else given.get("last", ABSENT))
    assert encode(read) == given, "after it was used"
    assert read == decode(Journey, given)


@pytest.mark.parametrize(
    "bicycle", [{"inches": "28", "brand": None}, {"inches": -1, "brand": None}, {"inches": 28}, [], None, {"inches": 28, "brand": None, "odd": 1}]
)
def test_another_form_of_a_lazy_object_is_found_when_the_object_is_read(bicycle: object) -> None:
    with pytest.raises(ShapeError, match="bicycle"):
        decode(Journey, {"bicycle": bicycle, "best": {"km": 1}})


def test_what_was_written_of_a_lazy_object_shares_no_container_with_the_dataclass() -> None:
    given = {"inches": 28, "brand": None}
    read = decode(Journey, {"bicycle": given, "best": {"km": 1}})
    given["inches"] = 5
    encode(read)["bicycle"]["inches"] = 7
    assert read.bicycle.inches == 28


def test_a_type_that_the_codec_does_not_know_is_a_type_error() -> None:
    @dataclasses.dataclass(frozen=True)
    class Odd:
        values: t.Set[int]

    with pytest.raises(TypeError, match="does not know the type"):
        decode(Odd, {"values": [1]})


def test_a_default_other_than_none_or_absent_is_a_type_error() -> None:
    @dataclasses.dataclass(frozen=True)
    class Odd:
        is_sold: bool = False

    with pytest.raises(TypeError, match=r"Odd\.is_sold: a key that may be missing has the default None or ABSENT"):
        encode(Odd())


def test_every_key_of_a_whole_dataclass_is_required_and_written() -> None:
    @dataclasses.dataclass(frozen=True)
    class Sold:
        IS_WHOLE: t.ClassVar[bool] = True
        is_sold: bool = False
        note: t.Optional[str] = None

    assert encode(Sold()) == {"is_sold": False, "note": None}
    assert decode(Sold, {"is_sold": True, "note": None}) == Sold(is_sold=True)
    with pytest.raises(ShapeError, match="note must be there"):
        decode(Sold, {"is_sold": True})


@dataclasses.dataclass(frozen=True)
class Ambiguous:
    value: t.Union[str, int]


def test_a_field_of_several_types_is_refused() -> None:
    with pytest.raises(TypeError, match="unions of several types"):
        decode(Ambiguous, {"value": 1})


def test_a_lazy_field_can_be_read_from_its_class() -> None:
    decode(Tour, {"name": "north", "stages": []})
    assert Tour.stages is vars(Tour)["stages"]
