// Copyright (c) 2026, The kvmfleet.migration developers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// The report's tables.

function domainColumn() {
  return {
    title: 'Domain', isLong: true, value: nameOf, text: (move) => `${nameOf(move)} ${move.domain.uuid} ${move.id}`,
    cell: (move) => make('button', { type: 'button', class: 'link', onclick: () => showMove(move, true) }, foreign(nameOf(move))),
  };
}

const WAY = { title: 'From → to', isLong: true, value: wayOf, cell: wayNode };
const OUTCOME = { title: 'Outcome', value: (move) => move.outcome, text: (move) => `${move.outcome} ${move.status}`, cell: (move) => chip(move.outcome) };
const BEGUN = { title: 'Begun', value: (move) => move.started_at || move.created_at, cell: (move) => make('span', { class: 'moment' }, at(move.started_at || move.created_at)) };

function figures(title, key, words) {
  return { title, figures: true, value: (row) => row[key], text: (row) => words(row[key]), cell: (row) => words(row[key]) };
}

function words(title, key) {
  return { title, isLong: true, value: (row) => row[key], cell: (row) => foreign(row[key]) };
}

function showMoves() {
  table(byId('moves-table'), {
    caption: 'Moves',
    rows: moves,
    columns: [
      domainColumn(), WAY, OUTCOME, BEGUN, figures('Took', 'elapsed_ms', inTime), figures('Downtime', 'downtime_ms', inTime), figures('Data', 'bytes', inBytes),
      { title: 'Mode', value: (move) => move.mode, cell: (move) => move.mode || NOTHING },
    ],
    sorted: { column: 3, descending: true },
  });
}

function showHosts() {
  table(byId('hosts-table'), {
    caption: 'Hosts',
    rows: report.hosts,
    columns: [
      { title: 'Host', isLong: true, value: (host) => host.name, cell: (host) => foreign(host.name) },
      figures('Left', 'left', count), figures('Arrived', 'arrived', count), figures('Not moved', 'not_moved', count), figures('Under way', 'under_way', count),
      { title: 'State', isLong: true, value: (host) => host.state, text: (host) => `${host.state} ${host.reason}`, cell: stateOf },
      { title: 'Safe to reboot', value: (host) => rebootWords(host), cell: rebootOf },
      { title: 'Why', isLong: true, value: (host) => host.reasons.join(' '), cell: reasonsOf },
    ],
  });
}

function stateOf(host) {
  return make('span', {}, host.state || NOTHING, host.reason ? make('span', { class: 'aside' }, foreign(host.reason)) : null);
}

function rebootWords(host) {
  return host.safe_to_reboot === null ? 'not known' : host.safe_to_reboot ? 'yes' : 'no';
}

function rebootOf(host) {
  // A host in service that simply has guests is no alarm.
  const no = host.judged_by === 'drain' || host.state === 'maintenance' ? 'failed' : 'cancelled';
  const kind = host.safe_to_reboot === null ? 'unknown' : host.safe_to_reboot ? 'completed' : no;
  return make('span', { class: `chip is-${kind}` }, icon(kind), rebootWords(host));
}

const REASONS_SHOWN = 3;

function reasonsOf(host) {
  const items = (reasons) => make('ul', { class: 'reasons' }, ...reasons.map((reason) => make('li', {}, foreign(reason))));
  if (!host.reasons.length) {
    return 'The drain has asked it: nothing runs there.';
  }
  if (host.reasons.length <= REASONS_SHOWN) {
    return items(host.reasons);
  }
  const rest = host.reasons.slice(REASONS_SHOWN);
  return make('div', {}, items(host.reasons.slice(0, REASONS_SHOWN)), make('details', {}, make('summary', {}, `${rest.length} more`), items(rest)));
}

function showRefused() {
  const rows = moves.filter((move) => NOT_MOVED.includes(move.outcome));
  table(byId('refused-table'), {
    caption: 'Moves that did not happen',
    rows,
    columns: [domainColumn(), WAY, OUTCOME, BEGUN, { ...words('Reason', 'reason'), isLong: false }, words('Why', 'why')],
  });
  return rows.length;
}

function showForced() {
  const rows = moves.filter((move) => move.forced || move.rung);
  table(byId('forced-table'), {
    caption: 'Moves that were forced',
    rows,
    columns: [
      domainColumn(), WAY, OUTCOME, { title: 'How', value: howForced, cell: howForced }, figures('Downtime', 'downtime_ms', inTime), words('What was overridden', 'forced_detail'),
    ],
  });
  return rows.length;
}

function showEvacuations() {
  const rows = moves.filter((move) => move.type === 'evacuation');
  table(byId('evacuations-table'), {
    caption: 'Evacuations',
    rows,
    columns: [
      domainColumn(), WAY, { ...OUTCOME, cell: (move) => chip(move.outcome, statusWords(move)) }, BEGUN, { title: 'Timeline', isLong: true, value: timelineWords, cell: timelineWords },
      { title: 'Evidence', isLong: true, value: evidenceWords, cell: (move) => make('div', {}, ...detailsOf(move).evidence.map(evidenceFold)) },
    ],
  });
  return rows.length;
}

function timelineWords(move) {
  return move.timeline ? move.timeline.text : NOTHING;
}

function evidenceWords(move) {
  return detailsOf(move).evidence.map((one) => Object.values(one).join(' ')).join(' ');
}

function evidenceFold(one) {
  const heading = [String(one.kind).replaceAll('_', ' '), one.agent, one.host, one.status].filter(Boolean).join(', ');
  return make('details', {}, make('summary', {}, foreign(heading)), make('p', { class: 'aside' }, at(one.at || null)), evidenceOf(one));
}
