// Copyright (c) 2026, The kvmfleet.migration developers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// One move in full.

function showMove(move, isWanted) {
  const details = detailsOf(move);
  const body = byId('move-body');
  byId('move-h').replaceChildren(foreign(nameOf(move)), make('span', { class: 'heading-way' }, wayNode(move)));
  const why = move.why ? make('p', { class: 'why' }, foreign(move.why)) : null;
  const chart = make('div', { class: 'chart', id: 'convergence-chart' });
  const hasSamples = details.samples.elapsed_ms.length > 0;
  const nothing = make('p', { class: 'note' }, 'There are no readings of this move: its job never ran, or ended before the first.');
  fill(
    body,
    make('p', { class: 'chips' }, chip(move.outcome, statusWords(move)), move.forced ? make('span', { class: 'chip is-forced' }, icon('forced'), move.forced) : null),
    why,
    moveFacts(move),
    ...(hasSamples ? [chart, sampleTable(details.samples)] : [nothing]),
    historyOf(details.history),
    policyOf(details.policy),
    namesOf(details.rewritten),
    ...(details.evidence.length ? [make('h3', {}, 'Evidence'), ...details.evidence.map(evidenceOf)] : []),
  );
  if (hasSamples) {
    showConvergence(chart, move, details.samples);
  }
  if (isWanted) {
    history.replaceState(null, '', `#move=${move.id}`);
    byId('move').focus({ preventScroll: true });
    byId('move').scrollIntoView({ block: 'start' });
  }
}

function statusWords(move) {
  return [move.status, move.reason].filter(Boolean).join(', ');
}

function moveFacts(move) {
  return facts([
    ['Begun', at(move.started_at || move.created_at)],
    ['Ended', at(move.ended_at)],
    ['Took', inTime(move.elapsed_ms)],
    ['Predicted', move.predicted_ms === null ? NOTHING : `${inTime(move.predicted_ms)} (${inTime(move.predicted_low_ms)} to ${inTime(move.predicted_high_ms)})`],
    ['Timeline', timelineWords(move)],
    ['Downtime', inTime(move.downtime_ms)],
    ['Predicted downtime', inTime(move.predicted_downtime_ms)],
    ['Set up in', inTime(move.setup_ms)],
    ['Data', inBytes(move.bytes)],
    ['Iterations', count(move.iterations)],
    ['Mode', move.mode || NOTHING],
    ['Ended by', move.rung || NOTHING],
    ['Progress', inPercent(move.percent)],
    ['Guest', move.memory_mib === null ? NOTHING : `${inBytes(move.memory_mib * 1048576)}, ${plural(move.vcpus, 'CPU', 'CPUs')}`],
    ['Domain', make('code', {}, move.domain.uuid)],
    ['Record', make('code', {}, move.id)],
  ].filter(([, value]) => value !== NOTHING));
}

function historyOf(lines) {
  const rows = lines.map((line) => make('li', {}, make('time', { datetime: line.at }, line.at.slice(11, 23)), make('strong', {}, foreign(line.status)), make('span', {}, line.detail ? foreign(line.detail) : ''), make('span', { class: 'by' }, foreign(line.by))));
  return make('div', {}, make('h3', {}, 'What happened'), make('ol', { class: 'history' }, ...rows));
}

function policyOf(policy) {
  const fields = Object.entries(policy);
  if (!fields.length) {
    return null;
  }
  const pairs = fields.map(([field, given]) => [field, `${given.value === null ? 'none' : given.value} (${given.source})`]);
  return make('details', { class: 'more' }, make('summary', {}, 'Policy that was in force'), facts(pairs));
}

function namesOf(changes) {
  if (!changes.length) {
    return null;
  }
  const pairs = changes.map((change) => [foreign(change.path), foreign(`${change.before} → ${change.after}`)]);
  return make('details', { class: 'more' }, make('summary', {}, 'Names that differ at the destination'), facts(pairs));
}

function evidenceOf(evidence) {
  const pairs = Object.entries(evidence).filter(([, value]) => value !== null && value !== '').map(([key, value]) => [key.replaceAll('_', ' '), foreign(value)]);
  return make('div', { class: 'evidence' }, facts(pairs));
}
