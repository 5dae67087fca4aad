import { assert } from '../base/assert.ts';
import type { Incarnation, ServerId } from '../base/ids.ts';

export interface ServerIncarnation {
  readonly server: ServerId;
  readonly incarnation: Incarnation;
}

/** Incarnation numbers fit the two bytes of a row's column. */
export const INCARNATIONS_MAX = 0xffff;

interface Known extends ServerIncarnation {
  readonly index: number;
}

/** Numbers server incarnations, so that a row stores two bytes for one. The owner sweeps it when it is full. */
export class IncarnationTable {
  readonly #incarnations: (Known | null)[] = [];
  readonly #byServer = new Map<ServerId, Known[]>();
  readonly #free: number[] = [];
  /** The last one numbered: most messages in a row are of one incarnation. */
  #recent: Known | null = null;

  /** @returns the number of an incarnation, a new one if needed; null if the table is full */
  number(server: ServerId, incarnation: Incarnation): number | null {
    const recent = this.#recent;
    if (recent !== null && recent.incarnation === incarnation && recent.server === server)
      return recent.index;
    let known = this.#byServer.get(server);
    if (known === undefined) {
      known = [];
      this.#byServer.set(server, known);
    }
    for (const entry of known) {
      if (entry.incarnation !== incarnation) continue;
      this.#recent = entry;
      return entry.index;
    }
    const index = this.#free.pop() ?? this.#incarnations.length;
    if (index >= INCARNATIONS_MAX) return null;
    const entry = { server, incarnation, index };
    this.#recent = entry;
    this.#incarnations[index] = entry;
    known.push(entry);
    return index;
  }

  get freeCount(): number {
    return INCARNATIONS_MAX - this.#incarnations.length + this.#free.length;
  }

  at(index: number): ServerIncarnation {
    const entry = this.#incarnations[index];
    assert(entry !== undefined && entry !== null, 'A row refers to incarnations of the table');
    return entry;
  }

  /** Removes the incarnations without an entry in `used`: no row refers to them. */
  sweep(used: Uint8Array): void {
    this.#recent = null;
    for (const [server, known] of this.#byServer) {
      const left = known.filter(({ index }) => used[index] === 1);
      for (const { index } of known) {
        if (used[index] === 1) continue;
        this.#incarnations[index] = null;
        this.#free.push(index);
      }
      if (left.length === 0) this.#byServer.delete(server);
      else this.#byServer.set(server, left);
    }
  }
}
