# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rows of docs/specs.md, the unit tests that they name, and the mutations in tests/mutations that break the rule of each row."""

from __future__ import annotations

import ast
import functools
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

PAGE = Path("docs", "specs.md")
MUTATIONS = Path("tests", "mutations")
UNIT_TESTS = Path("tests", "unit")
# What is mutated: everything that is run for a user.
MUTATED = ("extensions", "playbooks", "plugins", "roles")
KEYS = {"row", "broken", "file", "old", "new"}
_HEADING = re.compile(r"^#{2,} (.+)$")
_LINE = re.compile(r"^\| (?!---)(.*)\|$")
_SPAN = re.compile(r"`([^`]+)`")
_TEST = re.compile(r"^(?P<file>[\w./-]*\.py)?(::(?P<test>test_\w+)(?P<cut>…?))?$")


@dataclass(frozen=True)
class Row:
    """A row of a table.

    :arg section: the heading above its table.
    :arg name: its first cell, or its first two where the first cells of the table are not unique.
    :arg tests: the unit tests that it names by function, as pytest names them.
    :arg wrong: what is wrong with the names of its unit tests.
    """

    section: str
    name: str
    tests: tuple[str, ...]
    wrong: tuple[str, ...]

    @property
    def title(self) -> str:
        """The row in one line."""
        return f"{self.section}: {self.name}"


@dataclass(frozen=True)
class Mutation:
    """A change of one file that breaks the rule of a row.

    :arg broken: what the changed code does wrong.
    :arg old: a text that is in the file once.
    :arg new: the text in its place. If either has more than one line, both are whole lines, at any indentation.
    """

    section: str
    row: str
    broken: str
    file: str
    old: str
    new: str

    @property
    def title(self) -> str:
        """The row and what is broken, in one line."""
        return f"{self.section}: {self.row}: {self.broken}"


class Misfit(Exception):
    """A mutation does not apply."""


def read_rows(root: Path) -> list[Row]:
    """Return all rows of the page. Each table ends with the column of the tests."""
    tables: list[tuple[str, list[list[str]]]] = []
    section, was_row = "", False
    for line in (root / PAGE).read_text(encoding="utf-8").splitlines():
        heading, row = _HEADING.match(line), _LINE.match(line)
        if heading:
            section = heading[1]
        if row and not was_row:
            tables.append((section, []))
        elif row:
            tables[-1][1].append([cell.strip() for cell in row[1].split("|")])
        was_row = line.startswith("|")
    return [row for section, cells in tables for row in _read_table(root, section, cells)]


def _read_table(root: Path, section: str, table: list[list[str]]) -> Iterator[Row]:
    firsts = [cells[0] for cells in table]
    columns = 1 if len(set(firsts)) == len(firsts) else 2
    for cells in table:
        tests, wrong = _find_tests(root, cells[-1])
        yield Row(section, "; ".join(cells[:columns]), tuple(tests), tuple(wrong))


def _find_tests(root: Path, cell: str) -> tuple[list[str], list[str]]:
    """Return the unit tests that a cell names by function, and what is wrong with their names. C(::test_x) is a test of the file named before."""
    tests: list[str] = []
    wrong: list[str] = []
    file = ""
    for match in filter(None, map(_TEST.match, _SPAN.findall(cell))):
        file = match["file"] or file
        if not file.startswith("unit/") or not match["test"]:
            continue
        found = list(root.glob(str(UNIT_TESTS / file.removeprefix("unit/").replace("...", "**"))))
        if len(found) != 1 or match["cut"]:
            wrong.append(f"{file}::{match['test']} does not name one test")
        elif match["test"] not in _names_in(found[0]):
            wrong.append(f"{file} has no {match['test']}")
        else:
            tests.append(f"{found[0].relative_to(root)}::{match['test']}")
    return tests, wrong


@functools.cache
def _names_in(file: Path) -> frozenset[str]:
    return frozenset(node.name for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef))


def read_mutations(root: Path) -> list[Mutation]:
    """Return the mutations of all files. Raises Misfit for one of another form."""
    found = []
    for path in sorted((root / MUTATIONS).glob("*.yml")):
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        for one in document["mutations"]:
            if set(one) != KEYS or not all(isinstance(value, str) for value in one.values()):
                raise Misfit(f"{path.name}: a mutation has the texts {', '.join(sorted(KEYS))}: {one}")
            found.append(Mutation(section=document["section"], **one))
    return found


def mutate(root: Path, mutation: Mutation) -> str:
    """Return the text of the changed file. Raises Misfit if the mutation does not apply."""
    path = root / mutation.file
    if Path(mutation.file).parts[0] not in MUTATED or not path.is_file():
        raise Misfit(f"{mutation.file} is no file below {', '.join(MUTATED)}")
    if mutation.old == mutation.new:
        raise Misfit("old and new are the same")
    text = path.read_text(encoding="utf-8")
    has_lines = "\n" in mutation.old or "\n" in mutation.new
    changed = _replace_lines(text, mutation) if has_lines else _replace_text(text, mutation)
    _check_syntax(path, changed)
    return changed


def _replace_text(text: str, mutation: Mutation) -> str:
    if text.count(mutation.old) != 1:
        raise Misfit(f"{mutation.file} has the text {text.count(mutation.old)} times: {mutation.old}")
    return text.replace(mutation.old, mutation.new)


def _replace_lines(text: str, mutation: Mutation) -> str:
    lines, old = text.splitlines(), mutation.old.splitlines()
    places = [at for at in range(len(lines) - len(old) + 1) if textwrap.dedent("\n".join(lines[at : at + len(old)])).splitlines() == old]
    if len(places) != 1:
        raise Misfit(f"{mutation.file} has the lines {len(places)} times: {old[0]} ...")
    indentation = lines[places[0]][: len(lines[places[0]]) - len(lines[places[0]].lstrip())]
    new = textwrap.indent(mutation.new, indentation).splitlines()
    return "\n".join([*lines[: places[0]], *new, *lines[places[0] + len(old) :], ""])


def _check_syntax(path: Path, text: str) -> None:
    try:
        if path.suffix == ".py":
            ast.parse(text)
        elif path.suffix in (".yml", ".yaml"):
            yaml.safe_load(text)
    except (SyntaxError, yaml.YAMLError) as error:
        raise Misfit(f"{path.name} cannot be read after the change: {error}") from error


def find_problems(root: Path, rows: Sequence[Row], mutations: Sequence[Mutation]) -> list[str]:
    """Return what is missing or wrong without running a test: a row without a test or a mutation, and a mutation that has no row or does not apply."""
    named, broken = {(row.section, row.name) for row in rows}, {(one.section, one.row) for one in mutations}
    problems = [f"{row.title}: {wrong}" for row in rows for wrong in row.wrong]
    problems += [f"{row.title}: names no unit test by function" for row in rows if not row.tests and not row.wrong]
    problems += [f"{row.title}: has no mutation" for row in rows if (row.section, row.name) not in broken]
    problems += [f"{one.title}: there is no such row" for one in mutations if (one.section, one.row) not in named]
    return problems + [f"{one.title}: {why}" for one in mutations if (why := why_not(root, one))]


def why_not(root: Path, mutation: Mutation) -> str:
    """Return why the mutation does not apply; empty if it does."""
    try:
        mutate(root, mutation)
    except Misfit as misfit:
        return str(misfit)
    return ""
