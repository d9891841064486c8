// Copyright (c) 2026, The kvmfleet.migration developers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// How a move came to its end: what was left, how fast it went against how fast the guest wrote, and what was allowed.

function showConvergence(host, move, samples) {
  const seconds = samples.elapsed_ms.map((milliseconds) => milliseconds / 1000);
  // Before memory goes, there is nothing left by libvirt's count, and nothing to draw.
  const begun = Math.max(0, samples.remaining_bytes.findIndex((bytes) => bytes));
  const isToDraw = (key, index) => key !== 'remaining_bytes' || index >= begun;
  const points = (key) => samples[key].map((value, index) => [seconds[index], isToDraw(key, index) ? value : null]);
  const last = samples.remaining_bytes.length - 1;
  const label = `Convergence of ${nameOf(move)}: ${inBytes(samples.remaining_bytes[begun])} left at first, ${inBytes(samples.remaining_bytes[last])} after ${inTime(samples.elapsed_ms[last])}. The table below has the figures.`;
  chartIn(host, { label, height: 484, option: (colour) => convergenceOption(colour, points) });
}

const PANELS = [
  { title: 'Left to move', top: 38, height: 120 },
  { title: 'Bandwidth and dirty rate', top: 202, height: 100 },
  { title: 'Allowed downtime and throttle', top: 346, height: 90 },
];

function convergenceOption(colour, points) {
  const line = (panel, name, key, look, more = {}) => ({
    type: 'line', name, xAxisIndex: panel, yAxisIndex: panel, data: points(key), symbol: points(key).length < 3 ? 'circle' : 'none', symbolSize: 5,
    lineStyle: { width: 2, color: colour[look.colour], type: look.dash || 'solid' }, itemStyle: { color: colour[look.colour] }, ...more,
  });
  const step = { step: 'end' };
  const narrow = isNarrow();
  return {
    // Where there is no room for both, the legends of the lower panels are their titles.
    title: PANELS.map((panel, index) => ({ text: narrow && index > 0 ? '' : panel.title, left: 0, top: panel.top - 30, textStyle: { color: colour.ink, fontSize: 13, fontWeight: 600 } })),
    legend: [
      { data: ['bandwidth', 'dirty rate'], top: 172 }, { data: ['allowed downtime', 'throttle'], top: 316 },
    ].map((one) => ({ ...one, right: 0, itemWidth: 26, itemHeight: 8, textStyle: { color: colour.muted } })),
    grid: PANELS.map((panel) => ({ left: 78, right: 46, top: panel.top, height: panel.height })),
    xAxis: PANELS.map((panel, index) => ({
      type: 'value', gridIndex: index, min: 0, max: (extent) => Math.max(1, Math.ceil(extent.max)), axisLine: { lineStyle: { color: colour.line } }, splitLine: { show: false },
      axisLabel: { show: index === 2, color: colour.muted, formatter: (value) => `${value} s`, hideOverlap: true, showMaxLabel: false }, axisTick: { show: index === 2 },
      axisPointer: { show: true, label: { show: false } },
    })),
    yAxis: [
      { ...valueAxis(colour, 0, inBytes), ...binary(points('remaining_bytes')) },
      { ...valueAxis(colour, 1, inRate), ...binary([...points('bandwidth_bytes'), ...points('dirty_rate_bytes')]) },
      valueAxis(colour, 2, inTime),
      { ...valueAxis(colour, 2, (value) => `${value} %`), position: 'right', min: 0, max: 100, interval: 50, splitLine: { show: false } },
    ],
    axisPointer: { link: [{ xAxisIndex: 'all' }], lineStyle: { color: colour.muted } },
    tooltip: tooltip(colour, { trigger: 'axis', formatter: sampleCard }),
    series: [
      line(0, 'left to move', 'remaining_bytes', { colour: 'accent' }, { areaStyle: { color: colour.accent, opacity: 0.12 } }),
      line(1, 'bandwidth', 'bandwidth_bytes', { colour: 'accent' }),
      line(1, 'dirty rate', 'dirty_rate_bytes', { colour: 'second', dash: 'dashed' }),
      line(2, 'allowed downtime', 'allowed_downtime_ms', { colour: 'accent' }, step),
      line(2, 'throttle', 'throttle_percent', { colour: 'third', dash: 'dotted' }, { ...step, yAxisIndex: 3 }),
    ],
  };
}

// An axis of bytes whose marks are at powers of two, three to six of them.
function binary(points) {
  const most = points.reduce((sum, [, value]) => Math.max(sum, value || 0), 1);
  const interval = 2 ** Math.max(0, Math.ceil(Math.log2(most / 4)));
  return { max: Math.ceil(most / interval) * interval, interval };
}

function valueAxis(colour, panel, unit) {
  return {
    type: 'value', gridIndex: panel, min: 0, splitNumber: 3, axisLabel: { color: colour.muted, formatter: (value) => unit(Math.round(value)), showMaxLabel: true },
    axisLine: { show: false }, axisTick: { show: false }, splitLine: { lineStyle: { color: colour.line } },
  };
}

const SAMPLE_WORDS = { 'left to move': inBytes, bandwidth: inRate, 'dirty rate': inRate, 'allowed downtime': inTime, throttle: inPercent };

function sampleCard(items) {
  const list = make('div', { class: 'card' }, make('strong', {}, `after ${inTime(Math.round(items[0].value[0] * 1000))}`));
  for (const item of items) {
    list.append(make('div', {}, `${item.seriesName}: ${SAMPLE_WORDS[item.seriesName](item.value[1])}`));
  }
  return list;
}

function sampleTable(samples) {
  const columns = [
    ['after', 'elapsed_ms', inTime], ['left', 'remaining_bytes', inBytes], ['bandwidth', 'bandwidth_bytes', inRate],
    ['dirty rate', 'dirty_rate_bytes', inRate], ['allowed downtime', 'allowed_downtime_ms', inTime], ['throttle', 'throttle_percent', inPercent],
    ['iteration', 'iteration', count],
  ];
  const head = make('thead', {}, make('tr', {}, ...columns.map(([title]) => make('th', { scope: 'col', class: 'figures-cell' }, title))));
  const rows = samples.elapsed_ms.map((unused, index) => make('tr', {}, ...columns.map(([, key, words]) => make('td', { class: 'figures-cell' }, words(samples[key][index])))));
  const whole = make('table', { class: 'plain' }, make('caption', { class: 'unseen' }, 'Readings'), head, make('tbody', {}, ...rows));
  return make('details', { class: 'more' }, make('summary', {}, `${samples.elapsed_ms.length} readings`), make('div', { class: 'sideways', tabindex: '0', role: 'group', 'aria-label': 'Readings' }, whole));
}
