// Copyright (c) 2026, The kvmfleet.migration developers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Charts are drawn when somebody comes to look at them, and again where colours or width change.

// What fits between the margins of A4 and of Letter.
const PAPER_PIXELS = 640;

// Colours of series that are many: --series-1 and so on; further series take them again.
const SERIES = 8;

const charts = new Map();
const near = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting) {
      draw(charts.get(entry.target));
    }
  }
}, { rootMargin: '200px' });
const widths = new ResizeObserver((entries) => {
  for (const entry of entries) {
    const chart = charts.get(entry.target);
    if (chart && chart.instance && entry.contentRect.width > 0 && !document.documentElement.classList.contains('on-paper')) {
      chart.instance.resize();
    }
  }
});

function isNarrow() {
  return window.innerWidth < 640;
}

// What a chart is to show: option(colours), and onclick(index of the data) where it can be chosen.
function chartIn(host, { label, height, option, renderer = 'svg', onclick = null }) {
  const before = charts.get(host);
  if (before && before.instance) {
    before.instance.dispose();
  }
  host.style.height = `${height}px`;
  host.setAttribute('role', 'img');
  host.setAttribute('aria-label', label);
  charts.set(host, { host, option, renderer, onclick, instance: null });
  near.unobserve(host);
  near.observe(host);
  widths.observe(host);
}

function begin(chart) {
  if (chart.instance === null) {
    chart.instance = echarts.init(chart.host, null, { renderer: chart.renderer, devicePixelRatio: Math.max(2, window.devicePixelRatio) });
    if (chart.onclick) {
      chart.instance.on('click', (event) => chart.onclick(event));
    }
  }
}

function draw(chart) {
  begin(chart);
  chart.instance.setOption(styled(chart.option(colours())), { notMerge: true });
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  const names = ['ink', 'muted', 'line', 'page', 'surface', 'accent', 'second', 'third', 'on-status'];
  const found = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  found.series = Array.from({ length: SERIES }, (unused, index) => style.getPropertyValue(`--series-${index + 1}`).trim());
  for (const outcome of OUTCOMES) {
    found[outcome] = style.getPropertyValue(`--${outcome.replace(' ', '-')}`).trim();
  }
  return found;
}

function styled(option) {
  return { animation: false, useUTC: true, textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, fontSize: 12 }, ...option };
}

function tooltip(colour, more) {
  return {
    backgroundColor: colour.surface,
    borderColor: colour.line,
    textStyle: { color: colour.ink, fontSize: 13 },
    confine: true,
    transitionDuration: 0,
    ...more,
  };
}

function redrawAll() {
  for (const chart of charts.values()) {
    if (chart.instance) {
      draw(chart);
    }
  }
}

let opened = [];

// On paper charts are light and as wide as the paper, also those that nobody has looked at yet, and what is folded in tables is open.
function printing(isPrinting) {
  document.documentElement.classList.toggle('on-paper', isPrinting);
  for (const chart of charts.values()) {
    if (chart.host.offsetParent === null) {
      continue;
    }
    begin(chart);
    // What is set after the new width is painted at once: paper does not wait for the next frame.
    chart.instance.resize({ width: isPrinting ? PAPER_PIXELS : 'auto' });
    draw(chart);
  }
  for (const one of tables) {
    if (isPrinting) {
      one.unfold();
    } else {
      one.fold();
    }
  }
  opened = isPrinting ? [...document.querySelectorAll('td details:not([open])')] : opened;
  opened.forEach((one) => {
    one.open = isPrinting;
  });
}

window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redrawAll);
window.addEventListener('beforeprint', () => printing(true));
window.addEventListener('afterprint', () => printing(false));
