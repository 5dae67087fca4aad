/** Rates over the last minute, a line for each server, and the pause of writes when a primary dies, drawn and named. */

import { byId, h, setText } from './dom.js';
import { formatRate, formatSeconds } from './format.js';
import uPlot from './uplot.js';

const SPAN_S = 60;
const POINTS_MAX = 300;
/** Lines differ in colour and in how they are broken. */
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [1, 5]];
const COLOURS = ['--line-1', '--line-2', '--line-3', '--line-4', '--line-5'];
const HEIGHT = 170;
/** A pause of a steady load that is shorter is none; one that is longer is the end of the load. */
const GAP_MS_MIN = 600;
const GAP_MS_MAX = 20_000;
/** A load is steady when it was heard to write so often in so many seconds: servers are asked four times a second. */
const STEADY_S = 2;
const STEADY_WRITES = 6;

export class Traffic {
  #times = [];
  #series = new Map();
  #gaps = [];
  #lastWriteS = 0;
  #writeTimes = [];
  #watched = '';
  #version = 0;
  #reason = '';
  #charts = null;
  #ids = '';

  /** @param reason why writes wait, as far as that is known */
  add(state, reason) {
    const nowS = state.atMs / 1000;
    if (this.#times.length > 0 && nowS <= this.#times.at(-1)) return;
    this.#reason = reason || this.#reason;
    this.#noteGap(state, nowS);
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

  /** Of a server that came later nothing is known before. */
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
    this.#gaps = this.#gaps.filter(({ toS }) => toS === null || toS > this.#times[0]);
  }

  /** The pause is that of the file that is watched; where none is, of all together. */
  #noteGap({ sinceWriteMs, file }, nowS) {
    const name = file?.path ?? '';
    this.#noteWrites(name, file, sinceWriteMs, nowS);
    const lastS = this.#lastWriteS;
    if (lastS === 0) return;
    const open = this.#gaps.find(({ toS }) => toS === null);
    if (open !== undefined) {
      // A write after the beginning of the gap is its end: the first that was heard of came at the latest then.
      if (lastS > open.fromS + 0.2) Object.assign(open, { toS: lastS, reason: this.#reason || open.reason });
      else if ((nowS - lastS) * 1000 > GAP_MS_MAX) this.#gaps = this.#gaps.filter((gap) => gap !== open);
      return;
    }
    if ((nowS - lastS) * 1000 < GAP_MS_MIN || this.#writeTimes.length < STEADY_WRITES) return;
    if (this.#gaps.some(({ toS }) => toS !== null && lastS < toS)) return;
    this.#reason = '';
    this.#gaps.push({ fromS: lastS, toS: null, reason: '', name: this.#watched });
  }

  #noteWrites(name, file, sinceWriteMs, nowS) {
    if (name !== this.#watched) {
      this.#watched = name;
      this.#version = 0;
      this.#lastWriteS = 0;
      this.#writeTimes = [];
    }
    let wroteS = 0;
    if (name !== '') {
      const version = Math.max(0, ...file.replicas.map((replica) => replica.version ?? 0));
      if (version > this.#version && this.#version > 0) wroteS = nowS;
      this.#version = Math.max(version, this.#version);
    } else if (sinceWriteMs !== null) {
      // Whoever tells now may not have heard of the writes of a server that died.
      wroteS = nowS - sinceWriteMs / 1000;
    }
    if (wroteS <= this.#lastWriteS) return;
    this.#lastWriteS = wroteS;
    this.#writeTimes = [...this.#writeTimes.filter((time) => time > wroteS - STEADY_S), wroteS];
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
    const open = this.#gaps.find(({ toS }) => toS === null);
    const last = this.#gaps.findLast(({ toS }) => toS !== null);
    const gap =
      open !== undefined
        ? `Writes${ofFile(open)} wait now.`
        : last === undefined
          ? ''
          : `Last pause: ${gapText(last)}.`;
    setText(
      byId('writes-summary'),
      `${formatRate(sum('writesPerS'))} a second on all servers together. ${gap}`.trim(),
    );
    setText(byId('reads-summary'), `${formatRate(sum('readsPerS'))} a second on all servers together.`);
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
          x: { time: true, range: (_chart, _from, to) => [to - SPAN_S, to] },
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

  /** A band between the last write before and the first write after, hatched, with the reason above it. */
  #drawGaps({ ctx, bbox, valToPos }) {
    const style = getComputedStyle(document.documentElement);
    const scale = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const gap of this.#gaps) {
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
      const text = gap.toS === null ? `writes${ofFile(gap)} wait` : gapText(gap);
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

/** Text that can be read over lines. */
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

function agoText(seconds) {
  return Math.round(seconds) === 0 ? 'now' : `−${Math.round(seconds)} s`;
}

function gapText(gap) {
  return `${formatSeconds((gap.toS - gap.fromS) * 1000)} without writes${ofFile(gap)}`;
}

function ofFile({ name }) {
  return name === '' ? '' : ` of ${name}`;
}
