import type { ServiceError } from '../base/errors.ts';
import type { ServerId } from '../base/ids.ts';

/** A server without room has left a file to others: by then one of them has it, or none can. */
const TAKEOVER_MS_MAX = 3_000;

/** What happened on the way to a change, by which its last answer is judged. */
export interface Trail {
  /** An attempt may have had its effect although no success was reported. */
  ambiguous: boolean;
}

/** One round of attempts: each server is asked once, so that two servers that name each other cost no busy loop. */
export interface Round {
  readonly number: number;
  readonly tried: Set<ServerId>;
  /** Servers that did not answer others. */
  readonly silent: Set<string>;
  /** All members are asked, whether or not an answer names one. */
  walks: boolean;
}

/** What the attempts of one routed call have shown, over all rounds. */
export class RouteCourse {
  /** Servers that have no room, and since when: each has released the lease if others may have some. */
  readonly full = new Map<ServerId, number>();
  readonly #trail: Trail | null;
  #noRoom: ServiceError | null = null;
  /** The last answer that came with a reason; an attempt that the deadline cut short has none. */
  #said: ServiceError | null = null;

  constructor(trail: Trail | null) {
    this.#trail = trail;
  }

  /** What the caller learns where nothing else is left; null where no server gave a reason. */
  get reason(): ServiceError | null {
    return this.#noRoom ?? this.#said;
  }

  /** @returns whether no further attempt can have another answer */
  failed(server: ServerId, error: ServiceError, nowMs: number): boolean {
    if (error.code === 'no-space') {
      // A server that stays primary has asked the others: there is no server with room that could take its place.
      if (error.details.primary === server) return true;
      const sinceMs = this.full.get(server);
      if (nowMs - (sinceMs ?? nowMs) > TAKEOVER_MS_MAX) return true;
      if (sinceMs === undefined) this.full.set(server, nowMs);
      this.#noRoom = error;
    }
    const isAmbiguous = error.code === 'unknown' || error.code === 'no-majority';
    if (this.#trail !== null && isAmbiguous) this.#trail.ambiguous = true;
    if (error.code !== 'unknown') this.#said = error;
    return false;
  }
}
