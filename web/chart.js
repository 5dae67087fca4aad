/** Charts of the last minute, a line for each server, with the pause of writes when a primary dies. */

import { byId, h, setText } from './dom.js';
import { formatRate } from './format.js';
import { Pauses, pauseText } from './pauses.js';
import uPlot from './uplot.js';

const SPAN_S = 60;
const POINTS_MAX = 300;
/** Lines differ in colour and dash. */
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [1, 5]];
const COLOURS = ['--line-1', '--line-2', '--line-3', '--line-4', '--line-5'];
const HEIGHT = 170;

export class Traffic {
  #times = [];
  #series = new Map();
  #pauses = new Pauses();
  #charts = null;
  #ids = '';

  add(state, reporter, reason) {
    const nowS = state.atMs / 1000;
    if (this.#times.length > 0 && nowS <= this.#times.at(-1)) return;
    this.#pauses.add(state, reporter, reason);
    this.#times.push(nowS);
    for (const { id, writesPerS, readsPerS } of state.servers) {
      const series = this.#series.get(id) ?? { writes: this.#empty(), reads: this.#empty() };
      this.#series.set(id, series);
      series.writes.push(writesPerS);
      series.reads.push(readsPerS);
    }
    for (const [id, { writes, reads }] of this.#series) {
      if (state.servers.some((server) => server.id === id)) continue;
      writes.push(null);
      reads.push(null);
    }
    this.#trim();
    this.#draw(state.servers);
  }

  /** A server that was added later has no earlier values. */
  #empty() {
    return Array.from({ length: this.#times.length - 1 }, () => null);
  }

  #trim() {
    const surplus = this.#times.length - POINTS_MAX;
    if (surplus <= 0) return;
    this.#times.splice(0, surplus);
    for (const { writes, reads } of this.#series.values()) {
      writes.splice(0, surplus);
      reads.splice(0, surplus);
    }
    this.#pauses.forget(this.#times[0]);
  }

  #draw(servers) {
    const ids = servers.map(({ id }) => id).join();
    if (this.#charts === null || ids !== this.#ids) {
      this.#ids = ids;
      this.#build([...this.#series.keys()]);
    }
    for (const [kind, chart] of Object.entries(this.#charts)) {
      chart.setData([this.#times, ...[...this.#series.values()].map((series) => series[kind])]);
    }
    const sum = (key) => servers.reduce((total, server) => total + server[key], 0);
    const last = this.#pauses.all.at(-1);
    const pause =
      last === undefined
        ? ''
        : last.toS === null
          ? `Now ${pauseText(last)}.`
          : `Last pause: ${pauseText(last)}.`;
    setText(
      byId('writes-summary'),
      `${formatRate(sum('writesPerS'))} per second, all servers together. ${pause}`.trim(),
    );
    setText(byId('reads-summary'), `${formatRate(sum('readsPerS'))} per second, all servers together.`);
  }

  #build(ids) {
    for (const chart of Object.values(this.#charts ?? {})) chart.destroy();
    const make = (kind) => this.#chart(kind, ids);
    this.#charts = { writes: make('writes'), reads: make('reads') };
    byId('legend').replaceChildren(
      ...ids.map((id, place) => h('li', { 'data-line': String((place % COLOURS.length) + 1) }, id)),
    );
  }

  #chart(kind, ids) {
    const place = byId(`${kind}-chart`);
    const colour = (name) => () => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const axis = {
      stroke: colour('--ink-soft'),
      grid: { stroke: colour('--rule'), width: 1 },
      ticks: { show: false },
      font: '12px system-ui, sans-serif',
    };
    const chart = new uPlot(
      {
        width: Math.max(240, place.clientWidth),
        height: HEIGHT,
        cursor: { show: false },
        legend: { show: false },
        scales: {
          // For a single moment, the library's own bounds are a day apart.
          x: { time: true, range: (_chart, _from, to) => spanBefore(this.#times.at(-1) ?? to) },
          y: { range: (_chart, _from, to) => [0, Math.max(10, to * 1.15)] },
        },
        axes: [
          {
            ...axis,
            splits: ({ width }, _axis, _from, to) =>
              (width < 360 ? [SPAN_S, 30, 0] : [SPAN_S, 45, 30, 15, 0]).map((ago) => to - ago),
            values: (_chart, times) => times.map((time) => agoText((this.#times.at(-1) ?? time) - time)),
          },
          { ...axis, size: 44 },
        ],
        series: [
          {},
          ...ids.map((label, index) => ({
            label,
            stroke: colour(COLOURS[index % COLOURS.length]),
            dash: DASHES[index % DASHES.length],
            width: 2,
            points: { show: false },
          })),
        ],
        hooks: { draw: kind === 'writes' ? [(drawn) => this.#drawGaps(drawn)] : [] },
      },
      [[], ...ids.map(() => [])],
      place,
    );
    new ResizeObserver(() => {
      const width = Math.max(240, place.clientWidth);
      if (chart.width !== width) chart.setSize({ width, height: HEIGHT });
    }).observe(place);
    return chart;
  }

  /** Draws a pause as a band from the last write before to the first write after, with the reason above it. */
  #drawGaps({ ctx, bbox, valToPos }) {
    const style = getComputedStyle(document.documentElement);
    const scale = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const gap of this.#pauses.all) {
      const from = valToPos(gap.fromS, 'x', true);
      const to = valToPos(gap.toS ?? this.#times.at(-1) ?? gap.fromS, 'x', true);
      if (to <= bbox.left) continue;
      ctx.fillStyle = style.getPropertyValue('--gap').trim();
      ctx.fillRect(from, bbox.top, to - from, bbox.height);
      ctx.strokeStyle = style.getPropertyValue('--gap-edge').trim();
      ctx.lineWidth = scale;
      for (const at of [from, to]) line(ctx, at, bbox.top, bbox.top + bbox.height);
      ctx.fillStyle = style.getPropertyValue('--ink').trim();
      ctx.font = `600 ${12 * scale}px system-ui, sans-serif`;
      ctx.textBaseline = 'top';
      const text = pauseText(gap);
      const half = ctx.measureText(text).width / 2 + 4 * scale;
      const middle = Math.min(Math.max((from + to) / 2, bbox.left + half), bbox.left + bbox.width - half);
      ctx.textAlign = 'center';
      halo(ctx, text, middle, bbox.top + 4 * scale, style);
      if (gap.reason !== '') {
        ctx.font = `${11 * scale}px system-ui, sans-serif`;
        ctx.fillStyle = style.getPropertyValue('--ink-soft').trim();
        const width = ctx.measureText(gap.reason).width / 2 + 4 * scale;
        const at = Math.min(Math.max((from + to) / 2, bbox.left + width), bbox.left + bbox.width - width);
        halo(ctx, gap.reason, at, bbox.top + 20 * scale, style);
      }
    }
    ctx.restore();
  }
}

/** Text with a halo, readable over lines. */
function halo(ctx, text, x, y, style) {
  ctx.save();
  ctx.strokeStyle = style.getPropertyValue('--paper').trim();
  ctx.lineWidth = 4 * devicePixelRatio;
  ctx.lineJoin = 'round';
  ctx.strokeText(text, x, y);
  ctx.restore();
  ctx.fillText(text, x, y);
}

function line(ctx, x, top, bottom) {
  ctx.beginPath();
  ctx.moveTo(x, top);
  ctx.lineTo(x, bottom);
  ctx.stroke();
}

function spanBefore(to) {
  return [to - SPAN_S, to];
}

function agoText(seconds) {
  return Math.round(seconds) === 0 ? 'now' : `−${Math.round(seconds)} s`;
}
