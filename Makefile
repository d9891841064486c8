# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# make setup   install the requirements of the lab and the tests: Debian packages, two virtual environments in .build
# make demo    protect, check, maintain, evacuate and recover on three real libvirt hosts on this machine (KEEP=1 leaves them running; LEDGER=etcd uses three members, one of which dies; HA=1 evacuates without a person)
# make demo-files  write the report's files of docs/demo again from docs/demo/report.json, after a change of the report
# make test    run every suite except sanity-matrix, long, bench-quick, fuzz, mutations, faults, soak, eda, power-cuts, machine-cuts, test-mixed and test-machines; the last line is "N passed, N failed"
# make SUITE   run one suite: lint types units docs sanity sanity-releases sanity-matrix importer browser integration molecule bench-quick long fuzz mutations
# make fuzz    feed damaged input to every parser (CASES=10000 for each target, SEED=1, TARGETS="times uris" for some targets)
# make mutations  break each rule of docs/specs.md in a copy of the tree: a unit test that its row names must fail (ONLY='*post-copy*' for some rows)
# make faults  run every fault scenario on real hosts, and write docs/faults.md again (ONLY='disks/*' for some scenarios)
# make soak    run random actions and faults on a small fleet, in which nothing may be lost or run twice (MINUTES=10 SEED=1; REPLAY=.build/soak/1/journal.jsonl runs a journal again)
# make test-machines  run the scenarios on whole Debian machines under QEMU, which takes hours; make test-machines-core: the most important ones (ONLY=whole_story for one)
# make simulate  run many control processes with one ledger, and write the figures of docs/scale.md again (SIMULATE="--processes 10 --ledger etcd" for some of them)
# make test-mixed  run moves, evacuations and an upgrade in a fleet of two Debian releases (requires debootstrap, and half a GB below /var/cache)
# make interface  write the public interface, as ansible-doc reports it: tests/unit/docs/interface.yml
# make schemas  write the JSON Schemas of records, plans, results and notices, and the tables of their page: docs/schemas, docs/documents.md
# make importer  build the tarball, import it as Galaxy does, and write its bill of materials: .build/dist
# make docs    build the documentation as a site: .build/site/html/index.html
# make eda     test the event source and the rulebooks with a real ansible-rulebook (installs Java if version 17 or newer is missing)
# make power-cuts  let hosts of the lab die, and write into docs/benchmarks.md how long it takes until their guests are up without a person (CUTS=50); make machine-cuts: the same on whole machines (CUTS=10)
# make bench   run all benchmarks, and write docs/benchmarks.md again (BENCH="drain --rounds 7" for some of them)
# make browser  test the page of the report in a real Chromium; make charts: build its chart library again from npm packages
# make format  format the Python code

SUITES = lint types units docs sanity sanity-releases importer browser integration molecule
PYTHON = .build/venv/bin/python
# ONLY: a pattern of topic and name of fault scenarios, or of heading and row of docs/specs.md. LEDGER: the store of the demo's ledger.
export ONLY LEDGER

.PHONY: help setup sync demo test test-mixed test-machines test-machines-core simulate bench format clean sanity-matrix long bench-quick fuzz mutations faults soak eda power-cuts machine-cuts $(SUITES)

help:
	@sed -n 's/^# make/make/p' Makefile

setup:
	@sh tests/tools/setup.sh

# Requirements of the report's page, the rulebooks and the whole machines are installed only when these tests are run.
.PHONY: setup-browser setup-eda setup-machines charts
setup-browser setup-eda setup-machines: setup
	@sh tests/tools/setup.sh $(@:setup-%=%)

test browser: setup-browser

eda power-cuts machine-cuts test-machines: setup-eda

test-machines test-machines-core machine-cuts: setup-machines sync
	@$(PYTHON) tests/tools/run_suites.py $(@:test-%=%)

charts: setup-browser
	@$(PYTHON) tests/tools/charts.py

sync: setup
	@$(PYTHON) tests/tools/sync.py

.PHONY: interface
interface: sync
	@PYTHONPATH=.build $(PYTHON) -m ansible_collections.kvmfleet.migration.tests.unit.docs.interface tests/unit/docs/interface.yml

.PHONY: schemas
schemas: sync
	@PYTHONPATH=.build $(PYTHON) -m ansible_collections.kvmfleet.migration.tests.schemas.writer docs/schemas

.PHONY: demo-files
demo: sync
	@bash tests/tools/demo.sh

demo-files: sync
	@PYTHONPATH=.build $(PYTHON) -m ansible_collections.kvmfleet.migration.tests.demo.files docs/demo

test: sync
	@$(PYTHON) tests/tools/run_suites.py $(SUITES)

test-mixed: sync
	@$(PYTHON) tests/tools/run_suites.py mixed

simulate: sync
	@PYTHONPATH=.build $(PYTHON) -m ansible_collections.kvmfleet.migration.tests.simulator.crowd --page docs/scale.md $(SIMULATE)

bench: sync
	@$(PYTHON) tests/tools/bench.py $(BENCH)

$(SUITES) sanity-matrix long bench-quick fuzz mutations faults soak eda power-cuts: sync
	@$(PYTHON) tests/tools/run_suites.py $@

format: setup
	@.build/venv/bin/ruff check --fix --exit-zero -q . && .build/venv/bin/ruff format .

clean:
	rm -rf .build
