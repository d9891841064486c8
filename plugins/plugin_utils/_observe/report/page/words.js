// Copyright (c) 2026, The kvmfleet.migration developers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Figures in words: the same as in the report's other formats.

const NOTHING = '–';
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

function tenths(value, unit) {
  return (Math.floor((value * 20 + unit) / (2 * unit)) / 10).toFixed(1);
}

function inBytes(value) {
  if (value === null) {
    return NOTHING;
  }
  let unit = 0;
  while (unit < UNITS.length - 1 && value >= 1024 ** (unit + 1)) {
    unit += 1;
  }
  return unit === 0 ? `${value} B` : `${tenths(value, 1024 ** unit)} ${UNITS[unit]}`;
}

function inRate(value) {
  return value === null ? NOTHING : `${inBytes(value)}/s`;
}

function inTime(milliseconds) {
  if (milliseconds === null) {
    return NOTHING;
  }
  if (milliseconds < 1000) {
    return `${milliseconds} ms`;
  }
  if (milliseconds < 60000) {
    return `${tenths(milliseconds, 1000)} s`;
  }
  const seconds = Math.floor(milliseconds / 1000);
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} min ${seconds % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function inPercent(value) {
  return value === null ? NOTHING : `${value} %`;
}

function at(moment) {
  return moment === null ? NOTHING : moment.slice(0, 19).replace('T', ' ');
}

function count(number) {
  return number === null ? NOTHING : String(number).replace(/\B(?=(\d{3})+(?!\d))/g, '\u202f');
}

function plural(number, one, many) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
