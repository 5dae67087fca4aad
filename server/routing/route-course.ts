import type { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';

/** A server without disk space releases the file's lease. If no other is primary after this time, none can be. */
const TAKEOVER_MS_MAX = 3_000;

/** Whether earlier attempts of a change may have had an effect, which decides what its last error means. */
export interface Trail {
  /** An attempt may have had an effect although no success was reported. */
  ambiguous: boolean;
}

/** One round of attempts: each server is asked once, so that two servers that name each other cause no busy loop. */
export interface Round {
  readonly number: number;
  readonly tried: Set<ServerId>;
  /** Servers that an error of this round named as unreachable. */
  readonly unreachable: Set<string>;
  /** Ask all members, whether or not an answer names one. */
  asksAllMembers: boolean;
}

/** What the attempts of one routed call have shown, over all rounds. */
export class RouteCourse {
  /** Servers that refused the change with `no-space`, and the time of the first refusal. */
  readonly withoutSpace = new Map<ServerId, number>();
  readonly #trail: Trail | null;
  #noSpace: ServiceError | null = null;
  /** The last answer with a reason; an attempt that the deadline cut short has none. */
  #lastReason: ServiceError | null = null;

  constructor(trail: Trail | null) {
    this.#trail = trail;
  }

  /** The caller's error if no attempt succeeds; null if no server gave a reason. */
  get reason(): ServiceError | null {
    return this.#noSpace ?? this.#lastReason;
  }

  /** Records the error of an attempt. @returns whether no further attempt can have another outcome */
  failed(server: ServerId, error: ServiceError, nowMs: number): boolean {
    if (error.code === 'no-space') {
      // A server that stays primary has checked the others: none with space could take over.
      if (error.details.primary === server) return true;
      const sinceMs = this.withoutSpace.get(server);
      if (nowMs - (sinceMs ?? nowMs) > TAKEOVER_MS_MAX) return true;
      if (sinceMs === undefined) this.withoutSpace.set(server, nowMs);
      this.#noSpace = error;
    }
    const isAmbiguous = error.code === 'unknown' || error.code === 'no-majority';
    if (this.#trail !== null && isAmbiguous) this.#trail.ambiguous = true;
    if (error.code !== 'unknown') this.#lastReason = error;
    return false;
  }
}
