// Copyright (c) 2026, The kvmfleet.migration developers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// The last fleet check.

const CHECK_KINDS = { can: 'completed', unknown: 'unknown', cannot: 'failed' };

function checkChip(verdict, words) {
  const kind = CHECK_KINDS[verdict] || 'unknown';
  return make('span', { class: `chip is-${kind}` }, icon(kind), words);
}

function showFleetCheck() {
  const check = report.fleet_check;
  const names = (verdict) => Object.keys(check.hosts).filter((host) => check.hosts[host] === verdict);
  const hosts = Object.keys(CHECK_KINDS).filter((verdict) => names(verdict).length);
  const findings = check.attention.map((finding) => make('li', {}, foreign(finding)));
  fill(
    byId('fleet-check-body'),
    facts([
      ['Checked at', at(check.at)],
      ...hosts.map((verdict) => [checkChip(verdict, `${verdict} be lost alone`.replace('unknown be lost alone', 'not known')), foreign(names(verdict).join(', '))]),
      [`Sets of ${plural(check.hosts_lost, 'host', 'hosts')}`, Object.entries(check.sets).map(([verdict, number]) => `${count(number)} ${verdict}`).join(', ')],
    ]),
    findings.length ? make('ul', { class: 'reasons' }, ...findings) : make('p', { class: 'calm' }, icon('completed'), 'Nothing here needs a person.'),
    make('details', {}, make('summary', {}, 'The whole check'), make('pre', { class: 'check-lines', tabindex: '0' }, check.lines.join('\n'))),
  );
}
