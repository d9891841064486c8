// Copyright (c) 2026, The kvmfleet.migration developers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// All moves over time, beside the host that they left: moves at the same time lie above each other.

const MANY = 1500;
const SHORTEST_PIXELS = 3;
// Width from which a bar has room for its domain's name.
const NAMED_PIXELS = 56;

function spanOf(move) {
  const begun = Date.parse(move.started_at || move.created_at);
  return [begun, Math.max(begun, Date.parse(move.ended_at || report.made_at))];
}

// Rows of the chart: every host has as many as it had moves at once.
function lanesOf() {
  const byHost = new Map();
  const spans = moves.map((move) => ({ move, span: spanOf(move) })).sort((one, other) => one.span[0] - other.span[0]);
  for (const { move, span } of spans) {
    const host = move.source || NOTHING;
    if (!byHost.has(host)) {
      byHost.set(host, []);
    }
    const lanes = byHost.get(host);
    let lane = lanes.find((one) => one.until <= span[0]);
    if (!lane) {
      lane = { until: 0, bars: [] };
      lanes.push(lane);
    }
    lane.until = Math.max(span[1], span[0] + 1);
    lane.bars.push([span[0], span[1], move.index]);
  }
  const hosts = [...byHost.keys()].sort(inOrder);
  return hosts.flatMap((host) => byHost.get(host).map((lane, number) => ({ host, isFirst: number === 0, bars: lane.bars })));
}

function showTimeline() {
  const lanes = lanesOf();
  const rowHeight = lanes.length > 60 ? 12 : 24;
  const data = lanes.flatMap((lane, row) => lane.bars.map(([from, to, index], place) => [row, from, to, index, lane.bars[place - 1]?.[1], lane.bars[place + 1]?.[0]]));
  const height = lanes.length * rowHeight + 100;
  const hosts = new Set(lanes.map((lane) => lane.host)).size;
  chartIn(byId('timeline-chart'), {
    label: `Timeline of ${plural(moves.length, 'move', 'moves')} from ${plural(hosts, 'host', 'hosts')}, ${at(report.first_at)} to ${at(report.last_at)}. The table of moves has the same.`,
    height,
    renderer: moves.length > MANY ? 'canvas' : 'svg',
    option: (colour) => timelineOption(colour, lanes, data, widened(data)),
    onclick: (event) => showMove(moves[event.value[3]], true),
  });
  const seen = OUTCOMES.filter((outcome) => moves.some((move) => move.outcome === outcome));
  byId('timeline-legend').replaceChildren(...seen.map((outcome) => chip(outcome)));
}

// From when to when, with a little room on both sides: a night in which nothing ran has a width, too.
function widened(data) {
  const from = data.reduce((least, one) => Math.min(least, one[1]), Infinity);
  const to = data.reduce((most, one) => Math.max(most, one[2]), -Infinity);
  const room = Math.max(2000, (to - from) / 100);
  return { min: from - room, max: to + room };
}

function timelineOption(colour, lanes, data, extent) {
  const narrow = isNarrow();
  const fine = window.matchMedia('(pointer: fine)').matches;
  const zoom = { xAxisIndex: 0, filterMode: 'weakFilter' };
  const slider = {
    ...zoom, type: 'slider', bottom: 8, height: 22, brushSelect: false, borderColor: colour.line, fillerColor: `${colour.accent}22`, showDataShadow: false,
    handleStyle: { color: colour.surface, borderColor: colour.accent }, moveHandleStyle: { color: colour.accent, opacity: 0.4 },
    textStyle: { color: colour.muted }, showDetail: false,
  };
  const drawn = { type: 'custom', encode: { x: [1, 2], y: 0 } };
  return {
    grid: { left: narrow ? 64 : 96, right: 18, top: 30, bottom: 44 },
    xAxis: {
      type: 'time', position: 'top', axisLabel: { color: colour.muted, hideOverlap: true }, axisLine: { lineStyle: { color: colour.line } },
      splitLine: { show: true, lineStyle: { color: colour.line, opacity: 0.6 } }, ...extent,
    },
    yAxis: {
      type: 'category', inverse: true, data: lanes.map((lane, row) => row), axisTick: { show: false }, axisLine: { show: false },
      axisLabel: {
        color: colour.ink, fontWeight: 600, interval: 0, width: narrow ? 56 : 86, overflow: 'truncate',
        formatter: (row) => (lanes[row].isFirst ? lanes[row].host : ''),
      },
    },
    dataZoom: fine ? [slider, { ...zoom, type: 'inside', zoomOnMouseWheel: 'ctrl', moveOnMouseWheel: false }] : [slider],
    tooltip: tooltip(colour, { trigger: 'item', formatter: (item) => moveCard(moves[item.value[3]]) }),
    series: [
      { ...drawn, data: bandsOf(lanes, extent), z: -1, silent: true, tooltip: { show: false }, renderItem: (area, api) => band(area, api, colour) },
      { ...drawn, data, clip: true, progressive: 0, renderItem: (area, api) => bar(area, api, colour) },
    ],
  };
}

// Every other host lies on a ground of its own: its first row, and how many it has.
function bandsOf(lanes, extent) {
  const firsts = lanes.map((lane, row) => (lane.isFirst ? row : -1)).filter((row) => row >= 0);
  return firsts.map((row, index) => [row, extent.min, extent.max, (firsts[index + 1] ?? lanes.length) - row]).filter((unused, index) => index % 2 === 1);
}

function band(area, api, colour) {
  const height = api.size([0, 1])[1];
  const top = api.coord([0, api.value(0)])[1] - height / 2;
  const shape = { x: area.coordSys.x, y: top, width: area.coordSys.width, height: height * api.value(3) };
  return { type: 'rect', shape, style: { fill: colour.page }, silent: true };
}

function bar(area, api, colour) {
  const move = moves[api.value(3)];
  const [left, middle] = api.coord([api.value(1), api.value(0)]);
  const right = api.coord([api.value(2), api.value(0)])[0];
  const height = Math.max(6, api.size([0, 1])[1] - 6);
  const wanted = { x: left, y: middle - height / 2, width: Math.max(SHORTEST_PIXELS, right - left), height };
  const shape = echarts.graphic.clipRectByRect(wanted, { x: area.coordSys.x, y: area.coordSys.y, width: area.coordSys.width, height: area.coordSys.height });
  if (!shape) {
    return null;
  }
  const isMoved = !NOT_MOVED.includes(move.outcome);
  // Where bars are many, they lie over each other, and where they are more it gets darker.
  const style = isMoved ? { fill: colour[move.outcome], opacity: moves.length > MANY ? 0.45 : 1 } : { fill: colour.surface, stroke: colour[move.outcome], lineWidth: 2 };
  const box = { type: 'rect', shape: { ...shape, r: 3 }, style };
  const isInside = shape.width >= NAMED_PIXELS;
  const place = isInside ? { x: shape.x + 6, width: shape.width - 12 } : besideBar(area, api, shape);
  if (place.width < NAMED_PIXELS - 12 || height < 14) {
    return box;
  }
  const fill = isInside && isMoved ? colour['on-status'] : colour[isInside ? move.outcome : 'ink'];
  const words = { text: nameOf(move), ...place, y: middle, verticalAlign: 'middle', fill, fontSize: 12, overflow: 'truncate', ellipsis: '…' };
  return { type: 'group', children: [box, { type: 'text', style: words, silent: true }] };
}

// Beside a short bar, between those before and after it in its row: on the right where there is room, else on the left.
function besideBar(area, api, shape) {
  const gap = 5;
  const pixels = (index, otherwise) => (api.value(index) ? api.coord([api.value(index), api.value(0)])[0] : otherwise);
  const edge = area.coordSys.x + area.coordSys.width;
  const left = Math.max(area.coordSys.x, pixels(4, -Infinity)) + gap;
  const right = Math.min(edge, pixels(5, Infinity)) - gap;
  const after = { x: shape.x + shape.width + gap, width: right - shape.x - shape.width - gap };
  const before = { x: shape.x - gap, width: shape.x - gap - left, align: 'right' };
  return after.width >= NAMED_PIXELS || after.width >= before.width ? after : before;
}

function moveCard(move) {
  const took = move.elapsed_ms === null ? null : make('div', {}, `took ${inTime(move.elapsed_ms)}, downtime ${inTime(move.downtime_ms)}`);
  const why = NOT_MOVED.includes(move.outcome) ? make('div', { class: 'card-why' }, foreign(move.why || move.reason)) : null;
  const begun = make('div', {}, at(move.started_at || move.created_at));
  return make('div', { class: 'card' }, make('strong', {}, foreign(nameOf(move))), make('div', {}, wayNode(move)), chip(move.outcome), begun, took, why);
}
