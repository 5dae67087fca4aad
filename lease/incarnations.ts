import { assert } from '../base/assert.ts';
import type { Incarnation, ServerId } from '../base/ids.ts';

export interface ServerIncarnation {
  readonly server: ServerId;
  readonly incarnation: Incarnation;
}

/** Life numbers fit the two bytes of a row's column. */
export const LIVES_MAX = 0xffff;

interface Known extends ServerIncarnation {
  readonly index: number;
}

/** Numbers lives: a row holds two bytes instead of a name and a random number. Its owner sweeps it when it is full. */
export class IncarnationTable {
  readonly #lives: (Known | null)[] = [];
  readonly #byServer = new Map<ServerId, Known[]>();
  readonly #free: number[] = [];

  /** @returns the number of a life, a new one if needed; null if the table is full */
  number(server: ServerId, incarnation: Incarnation): number | null {
    let known = this.#byServer.get(server);
    if (known === undefined) {
      known = [];
      this.#byServer.set(server, known);
    }
    for (const life of known) if (life.incarnation === incarnation) return life.index;
    const index = this.#free.pop() ?? this.#lives.length;
    if (index >= LIVES_MAX) return null;
    const life = { server, incarnation, index };
    this.#lives[index] = life;
    known.push(life);
    return index;
  }

  get left(): number {
    return LIVES_MAX - this.#lives.length + this.#free.length;
  }

  at(index: number): ServerIncarnation {
    const life = this.#lives[index];
    assert(life !== undefined && life !== null, 'A row names lives that the table knows');
    return life;
  }

  /** Removes the lives without an entry in `used`: no row refers to them. */
  sweep(used: Uint8Array): void {
    for (const [server, known] of this.#byServer) {
      const left = known.filter(({ index }) => used[index] === 1);
      for (const { index } of known) {
        if (used[index] === 1) continue;
        this.#lives[index] = null;
        this.#free.push(index);
      }
      if (left.length === 0) this.#byServer.delete(server);
      else this.#byServer.set(server, left);
    }
  }
}
