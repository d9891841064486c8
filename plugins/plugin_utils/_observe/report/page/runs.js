// Copyright (c) 2026, The kvmfleet.migration developers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Maintenance runs: the hosts of each, step by step, and what people did to it.

const RUN_KINDS = {
  done: 'completed', finished: 'completed', 'nothing to do': 'completed', 'in progress': 'under-way', running: 'under-way', paused: 'under-way', failed: 'failed', stopped: 'cancelled', passed: 'completed',
};

function runChip(words) {
  const kind = RUN_KINDS[words] || 'unknown';
  return make('span', { class: `chip is-${kind}` }, icon(kind), words);
}

function stepWords(step) {
  return `${step.step}${step.is_fenced ? ' (fenced)' : ''}${step.seconds === null ? '' : ` ${step.seconds} s`}`;
}

function eventLine(line) {
  return `${at(line.at)}  ${line.event}${line.host ? ` ${line.host}` : ''}${line.detail ? `: ${line.detail}` : ''}  (${line.by})`;
}

function verdictWords(drill) {
  return drill.passed === null ? 'no verdict yet' : drill.passed ? 'passed' : 'failed';
}

function inSeconds(seconds) {
  return seconds === null ? NOTHING : `${seconds.toFixed(1)} s`;
}

function stageWords(guest) {
  return Object.entries(guest.stages).map(([stage, seconds]) => `${stage} ${inSeconds(seconds)}`).join(', ') || NOTHING;
}

function drillFacts(drill) {
  const reasons = drill.reasons.length ? [['Reasons', foreign(drill.reasons.join('; '))]] : [];
  return [
    ['Drill', runChip(verdictWords(drill))], ['Median', inSeconds(drill.median_seconds)], ['Longest', inSeconds(drill.longest_seconds)],
    ['Limit', `${drill.limit_seconds} s`], ...reasons,
  ];
}

function runNode(run, index) {
  return make(
    'article', { class: 'run', 'aria-labelledby': `run-${index}-h` },
    make('h3', { id: `run-${index}-h` }, `Run of ${at(run.created_at)}`),
    facts([
      ['State', runChip(run.state)], ['Begun by', foreign(run.created_by)], ['Last change', at(run.updated_at)], ['Limits', run.limits.join(', ')],
      ...(run.drill ? drillFacts(run.drill) : []),
      ...(run.reason ? [['Reason', foreign(run.reason)]] : []), ['ID', run.id],
    ]),
    make('div', { id: `run-${index}-hosts` }),
    ...(run.drill ? [make('div', { id: `run-${index}-guests` })] : []),
    make('details', {}, make('summary', {}, 'What happened'), make('pre', { class: 'check-lines', tabindex: '0' }, run.history.map(eventLine).join('\n'))),
  );
}

function showRuns() {
  fill(byId('runs-body'), ...report.maintenance_runs.map(runNode));
  report.maintenance_runs.forEach((run, index) => {
    table(byId(`run-${index}-hosts`), {
      caption: `Hosts of the run of ${at(run.created_at)}`,
      rows: run.hosts,
      columns: [
        { title: 'Host', isLong: true, value: (host) => host.name, cell: (host) => foreign(host.name) },
        { title: 'State', value: (host) => host.status, cell: (host) => runChip(host.status) },
        figures('Took', 'seconds', (seconds) => inTime(seconds === null ? null : seconds * 1000)),
        { title: 'Steps', isLong: true, value: (host) => host.steps.map(stepWords).join(', '), cell: (host) => host.steps.map(stepWords).join(', ') || NOTHING },
        words('Why', 'error'),
      ],
    });
    if (run.drill) {
      table(byId(`run-${index}-guests`), {
        caption: `Guests of the drill of ${at(run.created_at)}`,
        rows: run.drill.guests,
        columns: [
          words('Guest', 'name'), words('Ran on', 'destination'), figures('After', 'seconds', inSeconds),
          { title: 'Stages', isLong: true, value: stageWords, cell: stageWords }, words('Why', 'problem'),
        ],
      });
    }
  });
}
