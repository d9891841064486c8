# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The text format of Prometheus, version 0.0.4, as the textfile collector of the node exporter reads it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .histogram import Histogram

Labels = t.Mapping[str, str]
Sample = tuple[str, Labels, float]


@dataclass(frozen=True)
class Family:
    """One metric with its samples: suffix of the name, labels, value."""

    name: str
    kind: str
    help: str
    samples: list[Sample]

    def lines(self) -> t.Iterator[str]:
        """Yield its lines."""
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for suffix, labels, value in self.samples:
            yield f"{self.name}{suffix}{_labels(labels)} {_number(value)}"


def single(name: str, kind: str, text: str, value: float | None) -> Family:
    """Return a metric without labels; without a sample for None."""
    return Family(name, kind, text, [] if value is None else [("", {}, value)])


def by_label(name: str, kind: str, text: str, label: str, values: t.Mapping[str, float]) -> Family:
    """Return a metric with one sample for each value of its label."""
    return Family(name, kind, text, [("", {label: word}, value) for word, value in values.items()])


def histogram(name: str, text: str, values: Histogram) -> Family:
    """Return a histogram in seconds."""
    total, samples = 0, list[Sample]()
    for bound, count in zip((*values.bounds_ms, None), values.counts, strict=True):
        total += count
        samples.append(("_bucket", {"le": "+Inf" if bound is None else _number(bound / 1000)}, total))
    return Family(name, "histogram", text, [*samples, ("_sum", {}, values.sum_ms / 1000), ("_count", {}, total)])


def text_of(families: t.Iterable[Family]) -> str:
    """Return the whole file."""
    return "".join(f"{line}\n" for family in families for line in family.lines())


def _labels(labels: Labels) -> str:
    # Their values are words of our own, in which nothing has to be escaped.
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}" if labels else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
