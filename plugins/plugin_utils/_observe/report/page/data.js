// Copyright (c) 2026, The kvmfleet.migration developers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// The report's data, as it lies in the page. Details of moves are read when somebody looks at one.

function parsed(id) {
  return JSON.parse(byId(id).textContent);
}

const report = parsed('report');
const OUTCOMES = report.outcomes.all;
const NOT_MOVED = report.outcomes.not_moved;
const moves = report.moves.rows.map((row, index) => {
  const move = { index };
  report.moves.columns.forEach((name, column) => {
    move[name] = row[column];
  });
  return move;
});
const read = new Map();

function detailsOf(move) {
  const together = Math.floor(move.index / report.details_together);
  if (!read.has(together)) {
    read.set(together, parsed(`details-${together}`));
  }
  return read.get(together)[move.index % report.details_together];
}

function nameOf(move) {
  return move.domain.name || move.domain.uuid;
}

function wayOf(move) {
  return `${move.source || NOTHING} → ${move.destination || NOTHING}`;
}

// Names of an ordinary length stand in one line.
const WAY_IN_A_LINE = 34;

function wayNode(move) {
  return make('span', { class: wayOf(move).length <= WAY_IN_A_LINE ? 'in-a-line' : null }, foreign(move.source), '\u00a0→ ', foreign(move.destination));
}

// How it ended, for those that were made to end.
function howForced(move) {
  const how = [];
  if (move.forced) {
    how.push(move.forced);
  }
  if (move.rung) {
    how.push(`ended by ${move.rung}`);
  }
  return how.join(', ');
}
