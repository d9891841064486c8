# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# make setup   what the lab and the tests need: Debian packages, two virtual environments in .build
# make demo    protect, drain, evacuate and recover on three real libvirt hosts on this machine (KEEP=1 leaves them up; LEDGER=etcd: on three members, of which one dies)
# make demo-files  the report's files of docs/demo anew from docs/demo/report.json, after a change of what a report looks like
# make test    every suite but sanity-matrix, long, fuzz, faults, soak, eda, test-mixed and test-machines; its last line is "N passed, N failed"
# make SUITE   one of: lint types units docs sanity sanity-releases sanity-matrix importer browser integration molecule bench-quick long fuzz
# make fuzz    spoilt input for every parser, CASES=10000 a target, SEED=1, TARGETS="times uris" for some of them
# make faults  every fault scenario on real hosts, and docs/faults.md written anew (ONLY='disks/*' for some of them)
# make soak    anything may happen to a small fleet, MINUTES=10 SEED=1, and nothing may be lost or run twice; REPLAY=.build/soak/1/journal.jsonl plays one again
# make test-machines  scenarios on whole Debian machines under QEMU, which take hours; make test-machines-core: the most important (ONLY=whole_story for one)
# make simulate  many control processes over one ledger, and the figures of docs/scale.md written anew (SIMULATE="--processes 10 --ledger etcd" for some of it)
# make test-mixed  moves, evacuations and an upgrade in a fleet of two Debian releases (needs debootstrap, and half a GB below /var/cache)
# make interface  what users may rely on, written anew from what ansible-doc tells: tests/unit/docs/interface.yml
# make importer  the tarball as Galaxy would import it, and its bill of materials beside it: .build/dist
# make docs    the documentation as a site: .build/site/html/index.html
# make eda     the event source and the rulebooks under a real ansible-rulebook (installs Java where there is none of version 17 or newer)
# make bench   all benchmarks, and docs/benchmarks.md written anew (BENCH="drain --rounds 7" for some of it)
# make browser  the report's page in a real Chromium; make charts: its chart library anew, from npm's packages
# make format  puts Python code in shape

SUITES = lint types units docs sanity sanity-releases importer browser integration molecule bench-quick
PYTHON = .build/venv/bin/python
# Which fault scenarios: a pattern of topic and name. What keeps the ledger of the demo.
export ONLY LEDGER

.PHONY: help setup sync demo test test-mixed test-machines test-machines-core simulate bench format clean sanity-matrix long fuzz faults soak eda $(SUITES)

help:
	@sed -n 's/^# make/make/p' Makefile

setup:
	@sh tests/tools/setup.sh

# What only the tests of the report's page, those of the rulebooks, or those on whole machines need is brought for those who run them.
.PHONY: setup-browser setup-eda setup-machines charts
setup-browser setup-eda setup-machines: setup
	@sh tests/tools/setup.sh $(@:setup-%=%)

test browser: setup-browser

eda: setup-eda

test-machines test-machines-core: setup-machines sync
	@$(PYTHON) tests/tools/run_suites.py $(@:test-%=%)

charts: setup-browser
	@$(PYTHON) tests/tools/charts.py

sync: setup
	@$(PYTHON) tests/tools/sync.py

.PHONY: interface
interface: sync
	@PYTHONPATH=.build $(PYTHON) -m ansible_collections.kvmfleet.migration.tests.unit.docs.interface tests/unit/docs/interface.yml

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

$(SUITES) sanity-matrix long fuzz faults soak eda: sync
	@$(PYTHON) tests/tools/run_suites.py $@

format: setup
	@.build/venv/bin/ruff check --fix --exit-zero -q . && .build/venv/bin/ruff format .

clean:
	rm -rf .build
