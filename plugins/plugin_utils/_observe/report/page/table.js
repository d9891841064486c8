// Copyright (c) 2026, The kvmfleet.migration developers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// A table that can be sorted and searched, and shows a page of its rows at a time.

const ROWS_A_PAGE = 25;
// On paper all rows are shown, up to so many.
const ROWS_ON_PAPER = 500;

const tables = [];

// Columns: title, value(row) to sort by, cell(row), text(row) to search in, and whether they are figures, or texts that may be long.
function table(place, { caption, columns, rows, sorted = null, note = null }) {
  const state = { rows, matching: rows, page: 0, column: null, descending: false, texts: null, perPage: ROWS_A_PAGE };
  const body = make('tbody', { role: 'rowgroup' });
  const status = make('p', { class: 'table-status', role: 'status' });
  const earlier = make('button', { type: 'button', class: 'quiet', onclick: () => turn(-1) }, 'Earlier rows');
  const later = make('button', { type: 'button', class: 'quiet', onclick: () => turn(1) }, 'More rows');
  const headings = columns.map((column, index) => heading(column, index));
  const searchId = `${place.id}-search`;
  const search = make('input', { type: 'search', id: searchId, autocomplete: 'off', spellcheck: 'false', oninput: () => find(search.value) });

  function heading(column, index) {
    const button = make('button', { type: 'button', onclick: () => sort(index) }, column.title, make('span', { class: 'arrow', 'aria-hidden': 'true' }));
    return make('th', { scope: 'col', role: 'columnheader', 'aria-sort': 'none', class: column.figures ? 'figures-cell' : null }, button);
  }

  function turn(pages) {
    state.page += pages;
    show();
  }

  function sort(index, descending = null) {
    state.descending = descending === null ? (state.column === index ? !state.descending : Boolean(columns[index].figures)) : descending;
    state.column = index;
    state.page = 0;
    arrange();
    show();
  }

  function arrange() {
    if (state.column === null) {
      return;
    }
    const { value } = columns[state.column];
    state.matching = [...state.matching].sort((one, other) => compared(value(one), value(other), state.descending));
  }

  function find(words) {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    if (state.texts === null) {
      state.texts = new Map(rows.map((row) => [row, columns.map((column) => textOf(column, row)).join('\n').toLowerCase()]));
    }
    state.matching = rows.filter((row) => wanted.every((word) => state.texts.get(row).includes(word)));
    state.page = 0;
    arrange();
    show();
  }

  function show() {
    const first = state.page * state.perPage;
    const shown = state.matching.slice(first, first + state.perPage);
    body.replaceChildren(...shown.map(rowNode));
    const all = state.matching.length;
    const few = all === rows.length ? '' : ` found among ${count(rows.length)}`;
    status.textContent = all === 0 ? 'No row is found.' : `${count(first + 1)}–${count(first + shown.length)} of ${count(all)}${few}`;
    earlier.disabled = state.page === 0;
    later.disabled = first + state.perPage >= all;
    earlier.hidden = later.hidden = all <= state.perPage;
    headings.forEach((node, index) => {
      const order = state.descending ? 'descending' : 'ascending';
      node.setAttribute('aria-sort', index === state.column ? order : 'none');
    });
  }

  function rowNode(row) {
    const cells = columns.map((column, index) => {
      const given = column.cell(row);
      const kinds = [column.figures && 'figures-cell', column.isLong && 'long-cell', (given.textContent ?? given) === NOTHING && 'empty-cell'];
      const attributes = { role: 'cell', 'data-label': column.title, class: kinds.filter(Boolean).join(' ') };
      return index === 0 ? make('th', { ...attributes, scope: 'row', role: 'rowheader' }, given) : make('td', attributes, given);
    });
    return make('tr', { role: 'row' }, ...cells);
  }

  const tools = make('div', { class: 'table-tools' }, make('label', { for: searchId }, 'Search'), search, status, make('span', { class: 'pages' }, earlier, later));
  const head = make('thead', { role: 'rowgroup' }, make('tr', { role: 'row' }, ...headings));
  const whole = make('table', { role: 'table' }, make('caption', { class: 'unseen' }, caption), head, body);
  const paper = make('p', { class: 'on-paper' });
  place.replaceChildren(...(rows.length > 10 ? [tools] : []), whole, ...(note ? [make('p', { class: 'note' }, note)] : []), paper);
  if (sorted === null) {
    show();
  } else {
    sort(sorted.column, sorted.descending);
  }
  tables.push({
    unfold() {
      state.perPage = ROWS_ON_PAPER;
      paper.textContent = state.matching.length > ROWS_ON_PAPER ? `The first ${ROWS_ON_PAPER} of ${state.matching.length} rows.` : '';
      state.page = 0;
      show();
    },
    fold() {
      state.perPage = ROWS_A_PAGE;
      paper.textContent = '';
      show();
    },
  });
}

function textOf(column, row) {
  const text = column.text ? column.text(row) : column.value(row);
  return text === null || text === undefined ? '' : String(text);
}

const inOrder = new Intl.Collator('en', { numeric: true }).compare;

// What is not known comes last, whichever way the rest is sorted.
function compared(one, other, isDescending) {
  if (one === null || other === null) {
    return Number(one === null) - Number(other === null);
  }
  const order = typeof one === 'number' && typeof other === 'number' ? one - other : inOrder(String(one), String(other));
  return isDescending ? -order : order;
}
