import type { Incarnation, ServerId } from '../base/ids.ts';
import { INCARNATION_UNKNOWN } from './messages.ts';

/** Tracks the incarnations of the other servers: acknowledgements of an earlier one do not count for a new one. */
export class PeerIncarnations {
  readonly #current = new Map<ServerId, Incarnation>();
  /** Null until a server restarts, which is rare; there are many replicas. */
  #ended: Map<ServerId, Set<Incarnation>> | null = null;

  /** @returns the last incarnation that sent a message, or `INCARNATION_UNKNOWN` */
  of(server: ServerId): Incarnation {
    return this.#current.get(server) ?? INCARNATION_UNKNOWN;
  }

  isEnded(server: ServerId, incarnation: Incarnation): boolean {
    return this.#ended?.get(server)?.has(incarnation) === true;
  }

  /** @returns whether the server has restarted since its last message */
  received(server: ServerId, incarnation: Incarnation): boolean {
    const before = this.#current.get(server);
    this.#current.set(server, incarnation);
    if (before === undefined || before === incarnation) return false;
    this.#ended ??= new Map();
    const ended = this.#ended.get(server) ?? new Set();
    this.#ended.set(server, ended.add(before));
    return true;
  }
}
