# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What pages and code name in the source tree exists: files, tests, packages with all of their files, contracts of imports, and sections of pages."""

from __future__ import annotations

import configparser
import fnmatch
import os
import pathlib
import re
from collections.abc import Iterator

import pytest

from ansible_collections.kvmfleet.migration.tests.unit.docs.pages import DOCS, ROOT, anchors, make_anchor

ARCHITECTURE = DOCS / "architecture.md"
GLOSSARY = DOCS / "glossary.md"
LINKED_FILE = re.compile(r"\]\(([^)#]+)")
TOP_FOLDERS = ("awx", "bench", "changelogs", "docs", "extensions", "meta", "playbooks", "plugins", "roles", "tests")
HALVES = ("module_utils", "plugin_utils")
# Folders below tests/integration, tests/unit and tests/faults that docs/specs.md names without the rest of their paths.
TEST_FOLDERS = ("endings", "evacuation", "faults", "fencing", "guard", "moves", "policy", "protect", "scheduler", "storage", "unit")
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
TEST_NAME = re.compile(r"::(test_\w+)(…?)")
PAGE = re.compile(r"\bdocs/[\w/-]+\.md\b")
SECTION = re.compile(r"docs/([\w-]+\.md), \"([^\"]+)\"")
READMES = [page for top in ("tests", "roles") for page in (ROOT / top).glob("*/README.md")]
PAGES = sorted({*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *READMES} - {ROOT / "CHANGELOG.md"})


def list_tree() -> frozenset[str]:
    """Return the paths of all files and folders of the collection's sources."""
    found = set()
    for top in TOP_FOLDERS:
        for folder, folders, files in os.walk(ROOT / top):
            folders[:] = [name for name in folders if name not in ("__pycache__", "output")]
            found |= {os.path.relpath(os.path.join(folder, name), ROOT) for name in ["", *folders, *files]}
    return frozenset(found)


TREE = list_tree()


def code_spans(text: str) -> Iterator[str]:
    """Yield what is between backticks outside of blocks of code."""
    yield from CODE.findall(FENCE.sub("", text))


def is_path(span: str) -> bool:
    """Return whether a code span names a file or a folder of the source tree."""
    if not re.fullmatch(r"[\w./…*-]+(::\S+)?", span) or span.startswith("/"):
        return False
    first, slash, _rest = span.partition("/")
    return bool(re.search(r"\w\.py\b", span)) or (bool(slash) and (first in (*TOP_FOLDERS, *TEST_FOLDERS) or first.startswith("_")))


def exists(span: str) -> bool:
    """Return whether the tree has the path; C(…) stands for any text, and the ending of a fault scenario may be left out."""
    path = span.partition("::")[0].rstrip("/").replace("unit/.../", "unit/*/").replace("...", "*").replace("…", "*")
    return any(fnmatch.fnmatchcase(f"/{name}", f"*/{path}") or fnmatch.fnmatchcase(f"/{name}", f"*/{path}.yml") for name in TREE)


def names_of_tests() -> frozenset[str]:
    """Return the names of all test functions."""
    files = (path for path in (ROOT / "tests").rglob("*.py") if "def test_" in path.read_text(encoding="utf-8"))
    return frozenset(name for path in files for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))


def package_rows() -> dict[str, tuple[str, ...]]:
    """Return, for each half, the rows of the tables of docs/architecture.md, one for each package."""
    text = ARCHITECTURE.read_text(encoding="utf-8")
    tables = {half: text.partition(f"Below `plugins/{half}/`:")[2].partition("\n#")[0] for half in HALVES}
    return {half: tuple(line for line in table.splitlines() if re.match(r"\| \d+ \| `_", line)) for half, table in tables.items()}


def package_in(row: str) -> str:
    """Return the package that a row describes."""
    (package,) = code_spans(row.split("|")[2])
    return package.rstrip("/")


def names_on_disk(folder: pathlib.Path) -> frozenset[str]:
    """Return the names of the Python files, without ending, and the folders in a folder."""
    return frozenset(path.stem for path in folder.iterdir() if path.suffix == ".py" or (path.is_dir() and path.name != "__pycache__"))


def glossary_rows() -> list[tuple[str, list[str]]]:
    """Return the terms of docs/glossary.md, each with the files that define it."""
    rows = [line.split("|")[1:-1] for line in GLOSSARY.read_text(encoding="utf-8").splitlines() if line.count("|") == 4]
    return [(cells[0].strip(), LINKED_FILE.findall(cells[2])) for cells in rows if cells[0].strip("- ") not in ("", "term")]


def squeeze(text: str) -> str:
    """Return the letters and digits of a text, so that C(RememberedMove), C(remembered_move) and C(remembered move) are equal."""
    return re.sub(r"[^a-z0-9+]", "", text.lower())


def list_texts(*tops: str) -> Iterator[str]:
    """Yield the texts of all code in these folders."""
    for top in tops:
        for path in (ROOT / top).rglob("*"):
            if path.suffix in (".py", ".yml", ".sh", ".j2") and "golden" not in path.parts:
                yield path.read_text(encoding="utf-8")


def read_contracts() -> configparser.ConfigParser:
    """Return the contracts of imports."""
    config = configparser.ConfigParser()
    config.read(ROOT / ".importlinter", encoding="utf-8")
    return config


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_paths_in_pages_exist(page: pathlib.Path) -> None:
    named = {span for span in code_spans(page.read_text(encoding="utf-8")) if is_path(span)}

    assert sorted(span for span in named if not exists(span)) == []


@pytest.mark.parametrize("page", [page for page in PAGES if "::test_" in page.read_text(encoding="utf-8")], ids=lambda path: str(path.relative_to(ROOT)))
def test_tests_that_pages_name_exist(page: pathlib.Path) -> None:
    tests = names_of_tests()
    named = TEST_NAME.findall(page.read_text(encoding="utf-8"))

    assert [name for name, is_cut in named if not (any(test.startswith(name) for test in tests) if is_cut else name in tests)] == []


@pytest.mark.parametrize("half", HALVES)
def test_the_architecture_names_every_package_in_the_order_of_the_layers(half: str) -> None:
    contract = {"module_utils": "host", "plugin_utils": "control"}[half]
    layers = read_contracts()[f"importlinter:contract:{contract}"]["layers"].split("\n")[:0:-1]

    rows = [(int(row.split("|")[1]), package_in(row)) for row in package_rows()[half]]
    assert rows == [(number, package) for number, layer in enumerate(layers, 1) for package in layer.split(" | ")]
    assert {package for _number, package in rows} == names_on_disk(ROOT / "plugins" / half)


@pytest.mark.parametrize("half", HALVES)
def test_the_architecture_names_every_file_of_a_package_and_no_other(half: str) -> None:
    modules = names_on_disk(ROOT / "plugins" / "modules")
    for row in package_rows()[half]:
        folder = ROOT / "plugins" / half / package_in(row)
        files = (names_on_disk(folder) if folder.is_dir() else frozenset()) | {package_in(row)}
        spans = {span.rstrip("/") for span in code_spans(row) if not span.startswith("/")}
        assert (sorted(files - spans), sorted(spans - files - modules)) == ([], []), package_in(row)


def test_the_architecture_names_every_contract_of_imports() -> None:
    contracts = read_contracts()
    rows = ARCHITECTURE.read_text(encoding="utf-8").partition("| contract |")[2].partition("\n\n")[0].splitlines()[2:]

    assert [row.split("|")[1].strip() for row in rows] == [contracts[name]["name"] for name in contracts.sections() if ":contract:" in name]


def test_pages_that_code_names_exist() -> None:
    named = {page for text in list_texts("plugins", "roles", "playbooks", "extensions", "bench", "awx") for page in PAGE.findall(text)}

    assert "docs/libvirt.md" in named
    assert sorted(page for page in named if not (ROOT / page).is_file()) == []


def test_sections_of_pages_that_code_names_exist() -> None:
    named = {(page, title) for text in list_texts("plugins", "tests") for page, title in SECTION.findall(text)}

    assert ("libvirt.md", "A domain with a job") in named
    assert [(page, title) for page, title in named if make_anchor(title) not in anchors(DOCS / page)] == []


def test_the_glossary_has_each_term_once() -> None:
    terms = [term for term, _files in glossary_rows()]

    assert sorted(term for term in set(terms) if terms.count(term) > 1) == []


def test_files_that_define_a_term_of_the_glossary_contain_it() -> None:
    rows = glossary_rows()
    wrong = []
    for term, files in rows:
        word = squeeze(re.split(r" \(|, ", term)[0])
        wrong += [(term, file) for file in files if word not in squeeze((DOCS / file).read_text(encoding="utf-8"))]

    assert any(term == "tombstone" and files for term, files in rows)
    assert wrong == []


def test_the_readme_lists_every_module_and_role_once() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Contents")[2].partition("\n## ")[0]
    modules = sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py"))
    roles = sorted(path.name for path in (ROOT / "roles").iterdir())

    assert sorted(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == modules
    assert sorted(re.findall(r"^\| role `(\w+)`", text, re.MULTILINE)) == roles
