import type { Incarnation, ServerId } from '../base/ids.ts';
import { INCARNATION_UNKNOWN } from './messages.ts';

/** Tracks the incarnations of the other servers: a new one has acknowledged nothing of its predecessor's. */
export class PeerIncarnations {
  readonly #current = new Map<ServerId, Incarnation>();
  /** Null until a server restarts, which is rare; there are many replicas. */
  #former: Map<ServerId, Set<Incarnation>> | null = null;

  /** @returns the last incarnation that sent a message, or `LIFE_UNKNOWN` */
  of(server: ServerId): Incarnation {
    return this.#current.get(server) ?? INCARNATION_UNKNOWN;
  }

  isFormer(server: ServerId, incarnation: Incarnation): boolean {
    return this.#former?.get(server)?.has(incarnation) === true;
  }

  /** @returns whether the server has restarted since its last message */
  received(server: ServerId, incarnation: Incarnation): boolean {
    const before = this.#current.get(server);
    this.#current.set(server, incarnation);
    if (before === undefined || before === incarnation) return false;
    this.#former ??= new Map();
    const former = this.#former.get(server) ?? new Set();
    this.#former.set(server, former.add(before));
    return true;
  }
}
