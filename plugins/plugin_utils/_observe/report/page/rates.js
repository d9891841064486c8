// Copyright (c) 2026, The kvmfleet.migration developers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// The rates of one drain over time: the bandwidth of each move, one above the other, beside the known rate of the link.

const RATE_STEPS = 240;
const STEPS_A_READING = 4;
// So many moves have an area and a row of their own; the smallest of more are shown as one.
const MOST_RATED = 24;

function showRates() {
  const largest = report.rates.reduce((best, group) => (group.moves.length > best.moves.length ? group : best), report.rates[0]);
  const options = report.rates.map((group, index) => make('option', { value: index, selected: group === largest }, rateGroupWords(group)));
  const choice = make('select', { id: 'rates-group', onchange: () => showRatesOf(report.rates[choice.value]) }, ...options);
  byId('rates-choice').replaceChildren(make('label', { for: 'rates-group' }, 'Drain'), choice);
  byId('rates-choice').hidden = options.length < 2;
  showRatesOf(largest);
}

function rateGroupWords(group) {
  return `${group.source || NOTHING}, ${at(group.from_at)}, ${plural(group.moves.length, 'move', 'moves')}`;
}

function showRatesOf(group) {
  const from = Date.parse(group.from_at);
  const lasted = Math.max(1, Date.parse(group.until_at) - from);
  const width = lasted / RATE_STEPS;
  const rated = withOthers(group.moves.map(([index, offset]) => ratedMove(moves[index], offset, width)));
  rated.forEach((one, index) => {
    one.series = one.move ? index % SERIES : null;
  });
  const together = Array.from({ length: RATE_STEPS }, (unused, step) => rated.reduce((sum, one) => sum + one.rates[step], 0));
  const link = group.link_mib === null ? null : group.link_mib * 1048576;
  const mean = Math.round(together.reduce((sum, rate) => sum + rate, 0) / RATE_STEPS);
  const most = Math.round(Math.max(...together));
  const linkWords = link === null ? '' : ` The link carries ${inRate(link)}.`;
  const times = together.map((unused, step) => from + (step + 0.5) * width);
  chartIn(byId('rates-chart'), {
    label: `Rates of ${plural(group.moves.length, 'move', 'moves')} from ${group.source || NOTHING}, ${at(group.from_at)} to ${at(group.until_at)}: ${inRate(mean)} together in the mean, ${inRate(most)} at most.${linkWords} The tables below have the figures.`,
    height: 380,
    option: (colour) => ratesOption(colour, rated, times, together, link),
  });
  byId('rates-figures').replaceChildren(facts([
    ['Moves', count(group.moves.length)], ['Duration', inTime(Math.round(lasted))], ['Mean together', inRate(mean)], ['Highest together', inRate(most)],
    ['Link', inRate(link)], ['Share of the link', inPercent(link === null ? null : Math.round((100 * mean) / link))],
  ].filter(([, value]) => value !== NOTHING)));
  byId('rates-tables').replaceChildren(ratedTable(rated), togetherTable(times, together, rated));
}

// The mean rate of a move in each step: a reading holds for the time since the one before it, and the last one until the job's end.
function ratedMove(move, offset, width) {
  const { elapsed_ms: readAt, bandwidth_bytes: read } = detailsOf(move).samples;
  const moved = new Array(RATE_STEPS).fill(0);
  readAt.forEach((until, index) => spread(moved, offset + (index ? readAt[index - 1] : 0), offset + until, read[index] || 0, width));
  const last = readAt[readAt.length - 1] || 0;
  const lasted = Math.max(last, move.elapsed_ms || 0);
  spread(moved, offset + last, offset + lasted, read[read.length - 1] || 0, width);
  const bytes = moved.reduce((sum, one) => sum + one, 0) / 1000;
  return { move, moves: 1, rates: moved.map((one) => one / width), bytes, lasted, most: read.reduce((best, rate) => Math.max(best, rate || 0), 0) };
}

function spread(moved, from, until, rate, width) {
  for (let step = Math.max(0, Math.floor(from / width)); step < moved.length && step * width < until; step += 1) {
    moved[step] += rate * Math.max(0, Math.min(until, (step + 1) * width) - Math.max(from, step * width));
  }
}

function withOthers(rated) {
  if (rated.length <= MOST_RATED) {
    return rated;
  }
  const named = new Set([...rated].sort((one, other) => other.bytes - one.bytes).slice(0, MOST_RATED));
  const others = rated.filter((one) => !named.has(one));
  const rates = others[0].rates.map((unused, step) => others.reduce((sum, one) => sum + one.rates[step], 0));
  const bytes = others.reduce((sum, one) => sum + one.bytes, 0);
  return [...rated.filter((one) => named.has(one)), { move: null, moves: others.length, rates, bytes, lasted: null, most: Math.max(...rates) }];
}

function ratedName(one) {
  return one.move ? nameOf(one.move) : `${one.moves} others`;
}

function ratesOption(colour, rated, times, together, link) {
  const highest = [...together, link || 0].map((rate) => [0, rate]);
  const colourOf = (one) => (one.series === null ? colour.muted : colour.series[one.series]);
  const area = (one) => ({
    type: 'line', name: ratedName(one), stack: 'rates', step: 'middle', symbol: 'none', data: one.rates.map((rate, step) => [times[step], rate]),
    lineStyle: { width: 1, color: colour.surface }, itemStyle: { color: colourOf(one) }, areaStyle: { color: colourOf(one), opacity: 0.85 },
  });
  const line = {
    type: 'line', name: 'link', symbol: 'none', silent: true, data: times.map((time) => [time, link]), lineStyle: { width: 2, type: 'dashed', color: colour.ink },
    itemStyle: { color: colour.ink }, endLabel: { show: false }, z: 5,
  };
  const binaryMarks = binary(highest);
  return {
    title: link === null ? [] : [{ text: `dashed: the link, ${inRate(link)}`, right: 0, top: 0, textStyle: { color: colour.muted, fontSize: 12, fontWeight: 400 } }],
    grid: { left: 84, right: 18, top: 30, bottom: 30 },
    xAxis: {
      type: 'time', min: times[0], max: times[times.length - 1], axisLabel: { color: colour.muted, hideOverlap: true }, axisLine: { lineStyle: { color: colour.line } },
    },
    yAxis: { ...valueAxis(colour, 0, inRate), ...binaryMarks },
    tooltip: tooltip(colour, { trigger: 'axis', formatter: (items) => rateCard(items, rated) }),
    series: [...rated.map(area), ...(link === null ? [] : [line])],
  };
}

function rateCard(items, rated) {
  const flowing = items.filter((item) => item.seriesIndex < rated.length && item.value[1] > 0);
  const sum = flowing.reduce((total, item) => total + item.value[1], 0);
  const list = make('div', { class: 'card' }, make('strong', {}, at(new Date(items[0].value[0]).toISOString())), make('div', {}, `together: ${inRate(Math.round(sum))}`));
  for (const item of flowing) {
    const one = rated[item.seriesIndex];
    list.append(make('div', {}, swatch(one), foreign(ratedName(one)), `: ${inRate(Math.round(item.value[1]))}`));
  }
  return list;
}

function swatch(one) {
  return make('span', { class: `swatch${one.series === null ? '' : ` series-${one.series + 1}`}`, 'aria-hidden': 'true' });
}

function plainTable(caption, columns, rows) {
  const cell = (tag, title) => make(tag, { scope: tag === 'th' ? 'col' : null, class: title.isText ? null : 'figures-cell' }, title.value);
  const head = make('thead', {}, make('tr', {}, ...columns.map((column) => cell('th', { value: column.title, isText: column.isText }))));
  const body = make('tbody', {}, ...rows.map((row) => make('tr', {}, ...columns.map((column) => cell('td', { value: column.cell(row), isText: column.isText })))));
  const whole = make('table', { class: 'plain' }, make('caption', { class: 'unseen' }, caption), head, body);
  return make('div', { class: 'sideways', tabindex: '0', role: 'group', 'aria-label': caption }, whole);
}

function ratedTable(rated) {
  const domain = (one) => (one.move ? make('button', { type: 'button', class: 'link', onclick: () => showMove(one.move, true) }, foreign(nameOf(one.move))) : ratedName(one));
  const figure = (title, words) => ({ title, cell: words });
  return plainTable('Rates by move', [
    { title: 'Domain', isText: true, cell: (one) => make('span', {}, swatch(one), domain(one)) },
    { title: 'Destination', isText: true, cell: (one) => (one.move ? foreign(one.move.destination) : NOTHING) },
    figure('Took', (one) => inTime(one.lasted === null ? null : Math.round(one.lasted))),
    figure('Mean rate', (one) => inRate(one.lasted ? Math.round((1000 * one.bytes) / one.lasted) : null)),
    figure('Highest rate', (one) => inRate(Math.round(one.most))),
  ], rated);
}

function togetherTable(times, together, rated) {
  const rows = [];
  for (let step = 0; step < RATE_STEPS; step += STEPS_A_READING) {
    const some = together.slice(step, step + STEPS_A_READING);
    const isFlowing = (one) => one.rates.slice(step, step + STEPS_A_READING).some((rate) => rate > 0);
    rows.push({ at: times[step], rate: some.reduce((sum, rate) => sum + rate, 0) / some.length, flowing: rated.filter((one) => one.move && isFlowing(one)).length });
  }
  const readings = plainTable('Rates over time', [
    { title: 'at', isText: true, cell: (row) => new Date(row.at).toISOString().slice(11, 21) },
    { title: 'together', cell: (row) => inRate(Math.round(row.rate)) },
    { title: 'moves with data', cell: (row) => count(row.flowing) },
  ], rows);
  return make('details', { class: 'more' }, make('summary', {}, `${rows.length} readings over time`), readings);
}
