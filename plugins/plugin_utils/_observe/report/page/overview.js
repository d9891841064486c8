// Copyright (c) 2026, The kvmfleet.migration developers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// What a reader wants to know first: the counts, and what needs a person.

function tile(title, figure, words, look = '') {
  return make('div', { class: `tile ${look}` }, make('p', { class: 'tile-title' }, title), make('p', { class: 'tile-figure' }, figure), make('p', { class: 'tile-words' }, words));
}

function showOverview() {
  const { counts, downtimes, hosts } = report;
  const arrived = counts.completed + counts.evacuated;
  const lost = NOT_MOVED.map((outcome) => [counts[outcome], outcome]).filter(([number]) => number);
  const stayed = lost.reduce((sum, [number]) => sum + number, 0);
  const safe = hosts.filter((host) => host.safe_to_reboot === true).length;
  const asked = hosts.filter((host) => host.judged_by === 'drain').length;
  byId('tiles').replaceChildren(
    tile('Arrived', count(arrived), `of ${report.kinds}`, 'tile-first'),
    tile('Not moved', count(stayed), lost.map(([number, outcome]) => `${number} ${outcome}`).join(', ') || 'none stayed behind'),
    tile('Median downtime', inTime(downtimes.median_ms), downtimes.count ? `longest ${inTime(downtimes.most_ms)}` : 'none was measured'),
    tile('Data moved', inBytes(counts.bytes), `in ${plural(counts.live_migrations, 'live migration', 'live migrations')}`),
    tile('Safe to reboot', asked ? count(safe) : NOTHING, `${plural(hosts.length, 'host', 'hosts')}, ${asked ? count(asked) : 'none'} asked by a drain`),
  );
  byId('scope').textContent = scopeWords();
  showAttention();
}

function scopeWords() {
  const span = report.first_at ? ` Records from ${at(report.first_at)} to ${at(report.last_at)}.` : '';
  const coverage = report.coverage ? ` ${report.coverage}` : '';
  return `About ${report.about}.${span}${coverage} Made at ${at(report.made_at)}.`;
}

function showAttention() {
  const { counts } = report;
  const items = [];
  (report.attention || []).forEach((words) => items.push(make('li', { class: 'is-failed' }, icon('failed'), foreign(words))));
  const add = (kind, words, section) => items.push(make('li', { class: `is-${kind}` }, icon(kind), make('a', { href: `#${section}` }, words)));
  if (counts.uncertain) {
    add('uncertain', `${plural(counts.uncertain, 'move has', 'moves have')} an end that nobody could prove. Look at both hosts, then run the task again.`, 'refused');
  }
  const unstarted = moves.filter((move) => move.type === 'evacuation' && ['refused', 'failed'].includes(move.outcome));
  if (unstarted.length) {
    add('failed', `${plural(unstarted.length, 'evacuation was', 'evacuations were')} refused or failed. See whether the guests run.`, 'refused');
  }
  const failed = counts.failed - unstarted.filter((move) => move.outcome === 'failed').length;
  if (failed) {
    add('failed', `${plural(failed, 'move', 'moves')} failed. The guests are where they were.`, 'refused');
  }
  if (counts.evacuated) {
    add('evacuated', `${plural(counts.evacuated, 'evacuation waits', 'evacuations wait')} for the old host to return and to be cleaned.`, 'evacuations');
  }
  if (counts.under_way) {
    add('under-way', `${plural(counts.under_way, 'move is', 'moves are')} under way, as of the last record.`, 'moves');
  }
  if (counts.forced) {
    add('forced', `${plural(counts.forced, 'placement was', 'placements were')} forced past the scheduler. See whether they should stay.`, 'forced');
  }
  const calm = make('p', { class: 'calm' }, icon('completed'), 'Nothing here needs a person.');
  byId('attention').replaceChildren(items.length ? make('ul', {}, ...items) : calm);
}
