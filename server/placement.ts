import type { ServerId } from '../base/ids.ts';

/** Chooses which servers hold a new file: those in reach first, each in its turn. */
export class Placement {
  readonly #servers: readonly ServerId[];
  readonly #isConnected: (server: ServerId) => boolean;
  #turn = 0;

  constructor(servers: readonly ServerId[], isConnected: (server: ServerId) => boolean) {
    this.#servers = servers;
    this.#isConnected = isConnected;
  }

  /** @returns `replicas` different servers, or all there are */
  choose(replicas: number): ServerId[] {
    const start = this.#turn++ % this.#servers.length;
    const inTurn = [...this.#servers.slice(start), ...this.#servers.slice(0, start)];
    const reachable = inTurn.filter((server) => this.#isConnected(server));
    const away = inTurn.filter((server) => !this.#isConnected(server));
    return [...reachable, ...away].slice(0, replicas);
  }
}
