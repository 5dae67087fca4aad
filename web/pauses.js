/** Pauses of a steady load of writes: from the last write before to the first one after. */

import { formatSeconds } from './format.js';

/** Shorter gaps do not count; a longer one is the end of the load. */
const PAUSE_S_MIN = 0.6;
const PAUSE_S_MAX = 20;
/**
 * A load is steady when this share of the states of the last seconds reported new writes. A number of writes would not
 * do: states come four times a second, and less often from a busy server or to a busy page.
 */
const STEADY_S = 2;
const STEADY_STATES_MIN = 4;
const STEADY_SHARE = 0.7;
/** The reason may arrive a moment after the end of the pause. */
const REASON_S = 3;

export class Pauses {
  /** Each with `fromS`, `toS` (null while it lasts), `reason` and the `name` of its file. */
  all = [];
  #name = '';
  #reporter = '';
  #version = null;
  #lastS = 0;
  /** The last states: when each arrived, and whether it reported new writes. */
  #states = [];
  #isSteady = false;

  /**
   * @param state of the cluster, as a server reports it
   * @param reporter that server; another one may know of writes that the one before had not reported yet
   * @param reason why writes wait, or waited a moment ago, as far as known
   */
  add(state, reporter, reason) {
    const nowS = state.atMs / 1000;
    this.#noteState(state, reporter, nowS);
    if (this.#lastS === 0) return;
    const last = this.all.at(-1);
    if (last !== undefined && last.toS === null) {
      if (this.#lastS > last.fromS) last.toS = this.#lastS;
      else if (nowS - this.#lastS > PAUSE_S_MAX) this.all.pop();
    } else if (nowS - this.#lastS >= PAUSE_S_MIN && this.#isSteady) {
      this.all.push({ fromS: this.#lastS, toS: null, reason: '', name: this.#name });
      this.#isSteady = false;
    }
    const shown = this.all.at(-1);
    if (shown !== undefined && reason !== '' && (shown.toS === null || nowS - shown.toS < REASON_S)) {
      shown.reason = reason;
    }
  }

  /** Forgets pauses that ended before, except the last one, which the page shows until there is another. */
  forget(beforeS) {
    this.all = this.all.filter(
      ({ toS }, at, { length }) => toS === null || toS > beforeS || at === length - 1,
    );
  }

  #noteState(state, reporter, nowS) {
    const beforeS = this.#lastS;
    this.#noteWrites(state, reporter, nowS);
    const hasWrites = this.#lastS > beforeS;
    const isRecent = ({ atS }, at, { length }) => atS > nowS - STEADY_S || at >= length - STEADY_STATES_MIN;
    this.#states = [...this.#states, { atS: nowS, hasWrites }].filter(isRecent);
    if (!hasWrites) return;
    const wrote = this.#states.filter((one) => one.hasWrites).length;
    this.#isSteady = this.#states.length >= STEADY_STATES_MIN && wrote >= STEADY_SHARE * this.#states.length;
  }

  /** The pause is that of the watched file; without one, that of all files together. */
  #noteWrites({ file, sinceWriteMs }, reporter, nowS) {
    const name = file?.path ?? '';
    if (name !== this.#name) {
      this.all = this.all.filter(({ toS }) => toS !== null);
      this.#name = name;
      this.#version = null;
      this.#lastS = 0;
      this.#states = [];
      this.#isSteady = false;
    }
    if (name === '') {
      if (sinceWriteMs !== null) this.#wrote(nowS - sinceWriteMs / 1000);
      return;
    }
    const version = Math.max(0, ...file.replicas.map((replica) => replica.version ?? 0));
    if (version === 0) return;
    const isSameReporter = reporter === this.#reporter;
    this.#reporter = reporter;
    if (this.#version !== null && version > this.#version && isSameReporter) this.#wrote(nowS);
    this.#version = Math.max(version, this.#version ?? 0);
  }

  #wrote(atS) {
    this.#lastS = Math.max(this.#lastS, atS);
  }
}

/** `2.1 s without writes of main:/journal` */
export function pauseText(pause) {
  return pause.toS === null
    ? `writes${ofFile(pause)} wait`
    : `${formatSeconds((pause.toS - pause.fromS) * 1000)} without writes${ofFile(pause)}`;
}

function ofFile({ name }) {
  return name === '' ? '' : ` of ${name}`;
}
