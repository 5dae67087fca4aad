/**
 * What fell to chance in a run, written down so that it can be played again without dice: the fate of
 * every message, how late every timer was, how the clocks went, and every fault that struck. Times are
 * in milliseconds of true time since the run began, on a grid of a microsecond, so that their text is
 * short and exact.
 */
import type { ServerId } from '../../base/ids.ts';

/** One thing that did not go as calmly as it could have. */
export type Chance =
  /** The `number`-th message from one server to another: lost if it has no delays, doubled if two. */
  | {
      readonly kind: 'message';
      readonly from: ServerId;
      readonly to: ServerId;
      readonly number: number;
      readonly delaysMs: readonly number[];
    }
  /** The `number`-th timer of a server. */
  | { readonly kind: 'timer'; readonly server: ServerId; readonly number: number; readonly lateMs: number }
  /** The lease clock begins to move to another offset from true time, and is there after `overMs`. */
  | {
      readonly kind: 'clock';
      readonly atMs: number;
      readonly server: ServerId;
      readonly offsetMs: number;
      readonly overMs: number;
    }
  | { readonly kind: 'pause'; readonly atMs: number; readonly server: ServerId; readonly forMs: number }
  | { readonly kind: 'crash'; readonly atMs: number; readonly server: ServerId; readonly forMs: number }
  | {
      readonly kind: 'cut';
      readonly atMs: number;
      readonly links: readonly (readonly [ServerId, ServerId])[];
      readonly forMs: number;
    };

/** What a message and a timer do where no `Chance` says otherwise. */
export const USUAL_DELAY_MS = 1;
export const USUAL_LATE_MS = 0.05;

/** To a microsecond. */
export function microsecond(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}

/** The chances of a run by what they befall, for a world that replays them. */
export class Replay {
  readonly chances: readonly Chance[];
  readonly #messages = new Map<string, readonly number[]>();
  readonly #timers = new Map<string, number>();
  readonly #clocks = new Map<ServerId, ClockMove[]>();

  constructor(chances: readonly Chance[]) {
    this.chances = chances;
    for (const chance of chances) {
      if (chance.kind === 'message') {
        this.#messages.set(`${chance.from}${chance.to}${chance.number}`, chance.delaysMs);
      } else if (chance.kind === 'timer') {
        this.#timers.set(`${chance.server}${chance.number}`, chance.lateMs);
      } else if (chance.kind === 'clock') {
        const moves = this.#clocks.get(chance.server);
        if (moves === undefined) this.#clocks.set(chance.server, [chance]);
        else moves.push(chance);
      }
    }
    for (const moves of this.#clocks.values()) moves.sort((a, b) => a.atMs - b.atMs);
  }

  delaysMs(from: ServerId, to: ServerId, number: number): readonly number[] {
    return this.#messages.get(`${from}${to}${number}`) ?? USUAL_DELAYS;
  }

  lateMs(server: ServerId, number: number): number {
    return this.#timers.get(`${server}${number}`) ?? USUAL_LATE_MS;
  }

  clockMoves(server: ServerId): readonly ClockMove[] {
    return this.#clocks.get(server) ?? [];
  }
}

const USUAL_DELAYS: readonly number[] = [USUAL_DELAY_MS];

/** One stretch of a clock: from `atMs` on towards an offset, reached after `overMs`. */
export interface ClockMove {
  readonly atMs: number;
  readonly offsetMs: number;
  readonly overMs: number;
}
