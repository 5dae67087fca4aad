import { assert } from '../base/assert.ts';
import type { ServerId } from '../base/ids.ts';
import { majority } from '../base/quorum.ts';
import type { Epoch, Position, View } from './actions.ts';
import { positionCompare } from './epoch.ts';

/** Whose state a new epoch begins with, and where it stands. */
export interface Base {
  readonly holder: ServerId;
  readonly position: Position;
}

/**
 * The state with which the epoch begins: the whole state of the replica that stands furthest.
 *
 * Why it has every committed operation: each was acknowledged by a majority, which shares a replica
 * y with this one. y acknowledged before it promised, so it stands at least there, and the furthest
 * replica holds the same prefix. Never a merge of several replicas: of two operations that depend
 * on each other, a merge can keep the second and lose the first.
 *
 * @param promises the positions of a majority; at equal positions `self` wins, because its state
 *   need not be fetched
 */
export function authoritative(promises: ReadonlyMap<ServerId, Position>, self: ServerId): Base {
  const own = promises.get(self);
  assert(own !== undefined, 'The own promise is one of the majority');
  let base: Base = { holder: self, position: own };
  for (const [holder, position] of promises) {
    if (positionCompare(position, base.position) > 0) base = { holder, position };
  }
  return base;
}

/** Replica reset as the new primary sees it: promises in, base chosen, installations in. */
export class Reset {
  readonly epoch: Epoch;
  readonly #self: ServerId;
  readonly #majority: number;
  readonly #promises = new Map<ServerId, Position>();
  readonly #installed = new Map<ServerId, number>();
  #base: Base | null = null;

  constructor(epoch: Epoch, view: View, self: ServerId) {
    this.epoch = epoch;
    this.#self = self;
    this.#majority = majority(view.members.length);
  }

  /** The base once it is chosen. */
  get base(): Base | null {
    return this.#base;
  }

  /** Members that have the base, with their last operation; each once, by name. */
  get installed(): ReadonlyMap<ServerId, number> {
    return this.#installed;
  }

  hasPromised(member: ServerId): boolean {
    return this.#promises.has(member);
  }

  /**
   * Whether the member needs only the stamp: the base is here, and the member promised from exactly
   * there. Where the base is still to be fetched, nobody is stamped before, or it would move under the fetch.
   */
  needsOnlyStamp(member: ServerId): boolean {
    const base = this.#base;
    const position = this.#promises.get(member);
    if (base === null || base.holder !== this.#self || position === undefined) return false;
    return positionCompare(position, base.position) === 0;
  }

  hasInstalled(member: ServerId): boolean {
    return this.#installed.has(member);
  }

  /** Of a repeated answer the first counts: a replica that has promised does not move. */
  promise(member: ServerId, position: Position): void {
    if (this.#base === null && !this.#promises.has(member)) this.#promises.set(member, position);
  }

  /**
   * @returns the base, as soon as a majority with the own replica in it has promised; chosen once.
   *   The own promise is required, so that an epoch is never led by a replica it is not installed at.
   */
  choose(): Base | null {
    if (this.#base === null && this.#promises.has(this.#self) && this.#promises.size >= this.#majority) {
      this.#base = authoritative(this.#promises, this.#self);
    }
    return this.#base;
  }

  install(member: ServerId, seq: number): void {
    assert(this.#base !== null, 'What is installed was chosen');
    if (seq >= this.#base.position.seq) this.#installed.set(member, seq);
  }

  /**
   * Whether a majority, this replica included, has the base: from then on no later epoch can begin
   * without it. Serving earlier would show clients a state that may vanish.
   */
  isComplete(): boolean {
    return this.#installed.has(this.#self) && this.#installed.size >= this.#majority;
  }

  /** The member came back as another process: ask it again. */
  forget(member: ServerId): void {
    if (this.#base === null) this.#promises.delete(member);
    this.#installed.delete(member);
  }
}
