// Copyright (c) 2026, The kvmfleet.migration developers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// The distribution of downtimes.

const MODES = [['pre-copy', 'accent', null], ['post-copy', 'second', 'dashed'], ['paused', 'third', 'dotted']];

function rangeOf(one) {
  if (one.below_ms === null) {
    return `${one.from_ms / 1000} s or more`;
  }
  return one.below_ms < 1000 ? `${one.from_ms}–${one.below_ms} ms` : `${one.from_ms / 1000}–${one.below_ms / 1000} s`;
}

function showDowntimes() {
  const { downtimes } = report;
  const used = MODES.filter(([mode]) => downtimes.ranges.some((one) => one[mode]));
  byId('downtimes-figures').replaceChildren(
    facts([
      ['Moves', count(downtimes.count)], ['Shortest', inTime(downtimes.least_ms)], ['Median', inTime(downtimes.median_ms)],
      ['95 % within', inTime(downtimes.p95_ms)], ['99 % within', inTime(downtimes.p99_ms)], ['Longest', inTime(downtimes.most_ms)],
    ]),
  );
  const spoken = downtimes.ranges.map((one) => `${rangeOf(one)}: ${used.map(([mode]) => `${one[mode]} ${mode}`).join(', ')}`).join('; ');
  chartIn(byId('downtimes-chart'), { label: `Downtimes by range. ${spoken}.`, height: 260, option: (colour) => downtimesOption(colour, downtimes.ranges, used) });
}

function downtimesOption(colour, ranges, used) {
  return {
    grid: { left: 44, right: 12, top: 34, bottom: 46 },
    legend: { show: used.length > 1, top: 0, right: 0, textStyle: { color: colour.muted }, itemWidth: 14, itemHeight: 10 },
    xAxis: {
      type: 'category', data: ranges.map(rangeOf), axisTick: { show: false }, axisLine: { lineStyle: { color: colour.line } },
      axisLabel: { color: colour.muted, interval: 0, rotate: isNarrow() && ranges.length > 4 ? 45 : 0 },
    },
    yAxis: { type: 'value', minInterval: 1, axisLabel: { color: colour.muted }, splitLine: { lineStyle: { color: colour.line } } },
    tooltip: tooltip(colour, { trigger: 'axis', axisPointer: { type: 'shadow' }, formatter: rangeCard }),
    series: used.map(([mode, look]) => ({
      type: 'bar', name: mode, stack: 'all', data: ranges.map((one) => one[mode]), barMaxWidth: 56, itemStyle: { color: colour[look] },
    })),
  };
}

function rangeCard(items) {
  const list = make('div', { class: 'card' }, make('strong', {}, items[0].name));
  for (const item of items) {
    list.append(make('div', {}, `${item.seriesName}: ${plural(item.value, 'move', 'moves')}`));
  }
  return list;
}
