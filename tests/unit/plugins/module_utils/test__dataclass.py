# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The dataclasses of the collection behave as those of the standard library, and generate their methods late."""

from __future__ import annotations

import concurrent.futures
import copy
import dataclasses
import pickle
import sys
import threading
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass


def make_ours() -> t.Any:
    """Return a frozen class, with what the collection uses of dataclasses."""

    @dataclass(frozen=True)
    class Point:
        x: int
        y: int = 2
        tags: list[str] = dataclasses.field(default_factory=list, compare=False)
        note: str = dataclasses.field(default="", repr=False)
        LIMIT: t.ClassVar[int] = 9

    return Point


def make_theirs() -> t.Any:
    @dataclasses.dataclass(frozen=True)
    class Point:
        x: int
        y: int = 2
        tags: list[str] = dataclasses.field(default_factory=list, compare=False)
        note: str = dataclasses.field(default="", repr=False)
        LIMIT: t.ClassVar[int] = 9

    return Point


def derive_from(decorate: t.Callable[..., t.Any], base: t.Any) -> t.Any:
    """Return a class with one more field and two methods of its own."""

    @decorate(frozen=True)
    class Derived(base):  # type: ignore[misc]
        z: int = 3

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Derived)

        def __repr__(self) -> str:
            return "derived"

    return Derived


def pair(is_derived: bool) -> tuple[t.Any, t.Any]:
    ours, theirs = make_ours(), make_theirs()
    return (derive_from(dataclass, ours), derive_from(dataclasses.dataclass, theirs)) if is_derived else (ours, theirs)


@pytest.mark.parametrize("is_derived", [False, True])
def test_objects_are_shown_compared_and_hashed_as_by_the_standard_library(is_derived: bool) -> None:
    ours, theirs = pair(is_derived)
    for given in ((1,), (1, 3), (1, 3, ["a"], "b")):
        assert repr(ours(*given)).rpartition(".")[2] == repr(theirs(*given)).rpartition(".")[2]
        assert hash(ours(*given)) == hash(theirs(*given))
        assert ours(*given) == ours(*given)
        assert ours(*given) != theirs(*given)
    assert [field.name for field in dataclasses.fields(ours)] == [field.name for field in dataclasses.fields(theirs)]
    assert getattr(ours, "__match_args__", None) == getattr(theirs, "__match_args__", None)


def test_what_the_first_call_is_does_not_matter() -> None:
    for first in (hash, repr, lambda made: made == 1, copy.deepcopy, dataclasses.asdict):
        made = make_ours()(1)
        first(made)
        assert (made, hash(made)) == (dataclasses.replace(made), hash(dataclasses.replace(made)))


def test_wrong_arguments_are_named() -> None:
    point = make_ours()
    with pytest.raises(TypeError, match=r"Point.__init__\(\) missing 1 required positional argument: 'x'" if sys.version_info > (3, 10) else "'x'"):
        point()
    with pytest.raises(TypeError, match="unexpected keyword argument 'w'"):
        point(1, w=2)


def test_what_is_to_be_done_after_the_fields_are_set_is_done() -> None:
    @dataclass(frozen=True)
    class Range:
        first: int
        last: int

        def __post_init__(self) -> None:
            if self.first > self.last:
                raise ValueError(f"{self.first} is after {self.last}")

    assert Range(1, 2).last == 2
    with pytest.raises(ValueError, match="3 is after 2"):
        Range(3, 2)


def test_each_object_has_a_default_of_its_own() -> None:
    point = make_ours()
    point(1).tags.append("x")
    assert point(1).tags == []


def test_a_frozen_object_cannot_be_changed() -> None:
    made = make_ours()(1)
    for change in (lambda: setattr(made, "x", 2), lambda: setattr(made, "new", 2), lambda: delattr(made, "x")):
        with pytest.raises(dataclasses.FrozenInstanceError, match="frozen"):
            change()
    assert made == dataclasses.replace(made, x=1)


def test_an_object_that_can_be_changed_has_no_hash() -> None:
    @dataclass
    class Counter:
        count: int = 0

        def add(self) -> None:
            self.count += 1

    counter = Counter()
    counter.add()
    assert counter == Counter(1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter)


@dataclass(frozen=True)
class Pickled:
    value: int


def test_objects_are_copied_and_pickled() -> None:
    assert pickle.loads(pickle.dumps(Pickled(1))) == copy.copy(Pickled(1)) == Pickled(1)


def test_threads_may_make_the_first_objects_at_once() -> None:
    for _turn in range(50):
        point, begin = make_ours(), threading.Barrier(4)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            made = [pool.submit(lambda begin=begin, point=point: (begin.wait(10), point(1))[1]) for _number in range(4)]
        assert [one.result() for one in made] == [point(1)] * 4


def test_threads_may_ask_for_the_fields_of_a_class_and_of_its_base_at_once() -> None:
    for _turn in range(50):
        base, begin = make_ours(), threading.Barrier(4)
        derived = derive_from(dataclass, base)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            counted = [pool.submit(lambda begin=begin, kind=kind: (begin.wait(10), len(dataclasses.fields(kind)))[1]) for kind in (base, derived) * 2]
        assert [one.result() for one in counted] == [4, 5] * 2


def test_a_class_is_examined_and_its_methods_are_generated_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    for name in ("dataclass", "make_dataclass"):
        call = getattr(dataclasses, name)
        monkeypatch.setattr(dataclasses, name, lambda *args, name=name, call=call, **options: made.append(name) or call(*args, **options))
    point = make_ours()
    derived = derive_from(dataclass, point)
    assert made == []
    assert dataclasses.is_dataclass(derived)
    assert made == ["dataclass", "dataclass"]
    objects = point(1), point(2)
    # The standard library decorates the class that it makes.
    assert made[2:] == ["make_dataclass", "dataclass"]
    assert objects[0] != objects[1]
    assert made[4:] == ["make_dataclass", "dataclass"]
