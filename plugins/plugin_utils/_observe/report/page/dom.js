// Copyright (c) 2026, The kvmfleet.migration developers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Making elements. What a name or a reason says always becomes text, never markup.

const SVG = 'http://www.w3.org/2000/svg';

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) {
      node.addEventListener(name.slice(2), value);
    } else if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(name, value === true ? '' : value);
    }
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function fill(node, ...children) {
  node.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

function byId(id) {
  return document.getElementById(id);
}

function icon(name) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const use = document.createElementNS(SVG, 'use');
  use.setAttribute('href', `#i-${name}`);
  svg.append(use);
  return svg;
}

// A text of somebody else: it cannot turn the direction of what stands beside it.
function foreign(text) {
  return make('bdi', {}, text === null || text === '' ? NOTHING : String(text));
}

function chip(outcome, words = outcome) {
  const kind = outcome.replace(' ', '-');
  return make('span', { class: `chip is-${kind}` }, icon(kind), words);
}

function facts(pairs) {
  const list = make('dl', { class: 'facts' });
  for (const [term, value] of pairs) {
    list.append(make('div', {}, make('dt', {}, term), make('dd', {}, value)));
  }
  return list;
}
