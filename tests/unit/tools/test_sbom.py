# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The bill of materials of a release: valid, whole, and it notices what came into the tree without being told."""

from __future__ import annotations

import io
import json
import tarfile
import typing as t
from pathlib import Path

import pytest
from suites.sbom import bill, licences
from suites.sbom.contents import CHARTS, LOCK, Contents

TREE = Path(__file__).resolve().parents[3]
BUNDLE = "plugins/plugin_utils/_observe/report/page/echarts.min.js"
COPIED = (CHARTS, LOCK, BUNDLE, "requirements.txt", "meta/runtime.yml")
INFO = {
    "namespace": "kvmfleet",
    "name": "migration",
    "version": "1.2.3",
    "description": "Moves domains",
    "license": ["GPL-3.0-or-later"],
    "authors": ["The kvmfleet.migration developers"],
    "repository": "https://git.example.org/migration",
    "issues": "https://git.example.org/migration/issues",
}
OURS = "2026, The kvmfleet.migration developers"
Release = t.Callable[[dict[str, bytes]], Path]


@pytest.fixture(name="files")
def files_of_the_tree() -> dict[str, bytes]:
    manifest = json.dumps({"collection_info": INFO}).encode()
    return {"MANIFEST.json": manifest, **{name: (TREE / name).read_bytes() for name in COPIED}}


@pytest.fixture(name="release")
def packed(tmp_path: Path) -> Release:
    def pack(files: dict[str, bytes]) -> Path:
        tarball = tmp_path / "kvmfleet-migration-1.2.3.tar.gz"
        with tarfile.open(tarball, "w:gz") as archive:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return tarball

    return pack


def reuse(**more: tuple[str, str]) -> dict[str, t.Any]:
    """Return what REUSE says of the tree, and of files besides: licence and holder, by path."""
    told = {BUNDLE: ("Apache-2.0 AND BSD-3-Clause AND 0BSD", "2017 Baidu Inc."), "requirements.txt": ("GPL-3.0-or-later", OURS), **more}
    files = [{"path": path, "spdx_expressions": [{"value": licence}], "copyrights": [{"value": holder}]} for path, (licence, holder) in told.items()]
    return {"files": files}


def problems(tarball: Path, told: dict[str, t.Any]) -> list[str]:
    contents = Contents(tarball)
    return licences.missing(contents, bill.bill(contents, tarball), told)


def test_the_bill_of_materials_of_the_tree_is_valid_and_complete(files: dict[str, bytes], release: Release) -> None:
    tarball = release(files)
    assert problems(tarball, reuse()) == []
    written = bill.text(bill.bill(Contents(tarball), tarball))
    assert bill.flaw(written) is None
    told = json.loads(written)
    assert told["metadata"]["component"]["purl"] == "pkg:ansible/kvmfleet/migration@1.2.3"
    assert {"echarts", "zrender", "tslib", "jmespath", "ansible-core", "libvirt", "libvirt-python", "qemu"} == {one["name"] for one in told["components"]}
    needs = {one["ref"]: set(one.get("dependsOn", [])) for one in told["dependencies"]}
    assert needs["echarts"] == {"zrender", "tslib"}
    assert needs["kvmfleet.migration"] == {one["bom-ref"] for one in told["components"]}


def test_the_schema_refuses_unknown_keys() -> None:
    assert bill.flaw('{"bomFormat": "CycloneDX", "specVersion": "1.6", "wish": 1}') is not None


def test_a_bundled_version_that_differs_is_reported(files: dict[str, bytes], release: Release) -> None:
    files[BUNDLE] = files[BUNDLE].replace(b"Apache ECharts 6.", b"Apache ECharts 5.", 1)
    (problem,) = problems(release(files), reuse())
    assert problem.startswith(f"{BUNDLE} has echarts 5.")


def test_a_file_under_an_undeclared_licence_is_reported(files: dict[str, bytes], release: Release) -> None:
    files["plugins/copied.py"] = b""
    (problem,) = problems(release(files), reuse(**{"plugins/copied.py": ("MIT", OURS)}))
    assert problem.startswith("plugins/copied.py has something under MIT")


def test_an_undeclared_licence_in_a_bundled_file_is_reported(files: dict[str, bytes], release: Release) -> None:
    told = reuse(**{BUNDLE: ("Apache-2.0 AND BSD-3-Clause AND 0BSD AND MIT", "2017 Baidu Inc.")})
    (problem,) = problems(release(files), told)
    assert problem.startswith(f"{BUNDLE} has something under MIT")


def test_a_file_of_another_author_without_a_component_is_reported(files: dict[str, bytes], release: Release) -> None:
    files["plugins/copied.py"] = b""
    (problem,) = problems(release(files), reuse(**{"plugins/copied.py": ("GPL-3.0-or-later", "2020 Somebody Else")}))
    assert "Somebody Else" in problem


def test_a_file_outside_of_the_tarball_needs_no_component(files: dict[str, bytes], release: Release) -> None:
    assert problems(release(files), reuse(**{"bench/copied.py": ("MIT", "2020 Somebody Else")})) == []


def test_a_library_without_its_licence_is_reported(files: dict[str, bytes], release: Release) -> None:
    told = reuse(**{BUNDLE: ("GPL-3.0-or-later", OURS)})
    assert {problem.split(" has ")[1].split(" ")[0] for problem in problems(release(files), told)} == {"echarts", "zrender", "tslib"}


def test_a_library_missing_from_the_tarball_is_reported(files: dict[str, bytes], release: Release) -> None:
    del files[BUNDLE]
    assert sorted(problems(release(files), reuse())) == [f"{name} is nowhere in the tarball." for name in ("echarts", "tslib", "zrender")]


def test_a_requirement_without_a_known_licence_is_an_error(files: dict[str, bytes], release: Release) -> None:
    files["requirements.txt"] += b"left-pad >= 1\n"
    with pytest.raises(LookupError, match="left-pad"):
        Contents(release(files)).needs()
