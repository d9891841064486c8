// Copyright (c) 2026, The kvmfleet.migration developers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Balance runs: the score over time, and what each move was predicted to bring and brought.

function inScore(value) {
  return value === null || value === undefined ? NOTHING : value.toFixed(3);
}

function showBalances() {
  const runs = report.balance_runs;
  chartIn(byId('balances-chart'), {
    label: `The score before and after ${plural(runs.length, 'balance', 'balances')}. The table below has the figures.`,
    height: 300,
    option: (colour) => balancesOption(colour, runs),
  });
  table(byId('balances-table'), {
    caption: 'Balances',
    rows: runs,
    columns: [
      { title: 'Begun', value: (run) => run.created_at, cell: (run) => at(run.created_at) },
      { title: 'State', value: (run) => run.state, cell: (run) => runChip(run.state) },
      { title: 'Moves', figures: true, value: (run) => run.moves.length, cell: (run) => count(run.moves.length) },
      figures('Score before', 'score_before', inScore),
      figures('Predicted', 'score_predicted', inScore),
      figures('Measured', 'score_measured', inScore),
      figures('Predicted gain', 'predicted_gain', inScore),
      figures('Measured gain', 'measured_gain', inScore),
    ],
  });
  fill(byId('balances-body'), ...runs.map((run, index) => make('details', {}, make('summary', {}, `Moves of the balance of ${at(run.created_at)}, with the goal ${run.goal}`), make('div', { id: `balance-${index}` }))));
  runs.forEach((run, index) => showBalancedMoves(byId(`balance-${index}`), run));
}

function showBalancedMoves(place, run) {
  table(place, {
    caption: `Moves of the balance of ${at(run.created_at)}`,
    rows: run.moves,
    columns: [
      { title: 'Domain', isLong: true, value: (move) => move.domain, cell: (move) => foreign(move.domain) },
      words('Source', 'source'),
      words('Destination', 'destination'),
      { title: 'Outcome', value: (move) => move.outcome, cell: (move) => (move.outcome ? foreign(move.outcome) : NOTHING) },
      figures('Predicted gain', 'predicted_gain', inScore),
      figures('Measured gain', 'measured_gain', inScore),
      words('Repairs', 'why'),
    ],
  });
}

function balancesOption(colour, runs) {
  const line = (name, series, data, type = 'solid') => ({
    type: 'line', name, data, symbolSize: 7, lineStyle: { width: 2, type, color: colour.series[series] }, itemStyle: { color: colour.series[series] },
  });
  const measured = runs.filter((run) => run.measured_at !== null);
  const seen = [...runs.map((run) => [Date.parse(run.created_at), run.score_before]), ...measured.map((run) => [Date.parse(run.measured_at), run.score_measured])];
  return {
    grid: { left: 60, right: 18, top: 36, bottom: 30 },
    legend: { top: 0, textStyle: { color: colour.muted } },
    xAxis: { type: 'time', axisLabel: { color: colour.muted, hideOverlap: true }, axisLine: { lineStyle: { color: colour.line } } },
    yAxis: { ...valueAxis(colour, 0, String), axisLabel: { color: colour.muted } },
    tooltip: tooltip(colour, { trigger: 'item', valueFormatter: (value) => inScore(value[1]) }),
    series: [
      line('score', 0, seen.sort((one, other) => one[0] - other[0])),
      line('without the moves', 1, measured.map((run) => [Date.parse(run.measured_at), run.score_without_moves]), 'dashed'),
    ],
  };
}
