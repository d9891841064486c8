// Copyright (c) 2026, The kvmfleet.migration developers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// The page.

function showAll() {
  byId('main').hidden = false;
  const shown = new Map([
    ['overview', true],
    ['timeline', moves.length > 0],
    ['rates', report.rates.length > 0],
    ['hosts', report.hosts.length > 0],
    ['fleet-check', Boolean(report.fleet_check)],
    ['runs', Boolean(report.maintenance_runs)],
    ['balances', Boolean(report.balance_runs)],
    ['moves', moves.length > 0],
    ['move', moves.length > 0],
    ['downtimes', report.downtimes.count > 0],
    ['refused', moves.some((move) => NOT_MOVED.includes(move.outcome))],
    ['forced', moves.some((move) => move.forced || move.rung)],
    ['evacuations', moves.some((move) => move.type === 'evacuation')],
  ]);
  const drawing = {
    overview: showOverview, timeline: showTimeline, rates: showRates, hosts: showHosts, moves: showMoves, move: () => showMove(firstMove(), false),
    'fleet-check': showFleetCheck, runs: showRuns, balances: showBalances, downtimes: showDowntimes, refused: showRefused, forced: showForced, evacuations: showEvacuations,
  };
  for (const [section, isShown] of shown) {
    byId(section).hidden = !isShown;
    if (isShown) {
      drawing[section]();
    }
  }
  showJumps([...shown].filter(([section, isShown]) => isShown && section !== 'overview' && section !== 'move').map(([section]) => section));
  window.addEventListener('hashchange', followHash);
  followHash();
}

function showJumps(sections) {
  byId('jump').replaceChildren(...sections.map((section) => make('a', { href: `#${section}` }, byId(`${section}-h`).textContent.split(/[,]| and /)[0])));
  byId('jump').parentElement.hidden = sections.length < 2;
}

// The move to begin with: one that did not come over although it had begun, else the one that took longest.
function firstMove() {
  const weight = (move) => (NOT_MOVED.includes(move.outcome) && move.percent > 0 ? 1e15 : 0) + (move.elapsed_ms || 0);
  return moves.reduce((best, move) => (weight(move) > weight(best) ? move : best), moves[0]);
}

function followHash() {
  const wanted = location.hash.match(/^#move=(.+)$/);
  const move = wanted && moves.find((one) => one.id === wanted[1]);
  if (move) {
    showMove(move, true);
  }
}

showAll();
document.documentElement.dataset.ready = 'yes';
