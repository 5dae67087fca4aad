import { assert } from '../base/assert.ts';
import type { ServerId } from '../base/ids.ts';
import { majority } from '../base/quorum.ts';
import type { Epoch, Position } from './epoch.ts';
import { positionCompare } from './epoch.ts';
import type { Trust } from './record.ts';
import type { View } from './view.ts';
import { viewHasMajority, viewSides, viewVoters } from './view.ts';

/** The state that a new epoch begins with: the replica that has it, and its position. */
export interface Base {
  readonly holder: ServerId;
  readonly position: Position;
}

/**
 * The base of the epoch: the whole state of the replica with the largest position.
 *
 * Why it has every committed operation: a majority acknowledged each, and shares a replica y with this majority. y
 * acknowledged before it promised, so its position is at least there, and the largest position has the same prefix.
 * Never a merge of several replicas: of two dependent operations a merge can keep the second and lose the first.
 *
 * @param promises positions of a majority; at equal positions `self` wins, as its state needs no fetch
 */
export function authoritativeState(
  promises: ReadonlyMap<ServerId, { readonly position: Position }>,
  self: ServerId,
): Base {
  const own = promises.get(self);
  assert(own !== undefined, 'The own promise is one of the majority');
  let base: Base = { holder: self, position: own.position };
  for (const [holder, { position }] of promises) {
    if (positionCompare(position, base.position) > 0) base = { holder, position };
  }
  return base;
}

export interface Promised {
  readonly position: Position;
  readonly view: View;
  readonly trust: Trust;
}

/**
 * Whether these promises contain all that was acknowledged, for each side of the view:
 *
 * - a majority of intact replicas: each acknowledged operation was on a majority, which shares one with it; or
 * - any majority, if a majority lost power: then only synced operations must survive, and every majority has a replica
 *   that synced them. Only after others had time to answer (`mayLose`), which may have unsynced ones; or
 * - all replicas: no other has more. Not if all stores were replaced: such a subject does not restart empty, unless
 *   `mayBeginLost`.
 *
 * New members whose stores were all replaced lack nothing that the old members have, while both sets vote. So they
 * delay nothing once every voter promised: then no other server can know that the change ended.
 */
export function promisesSuffice(
  view: View,
  promises: ReadonlyMap<ServerId, Promised>,
  { mayBeginLost, mayLose }: { readonly mayBeginLost: boolean; readonly mayLose: boolean },
): boolean {
  const allPromised = viewVoters(view).every((server) => promises.has(server));
  return viewSides(view).every((side) => {
    const needed = majority(side.length);
    const trusts = side.flatMap((server) => promises.get(server)?.trust ?? []);
    const count = (trust: Trust): number => trusts.filter((each) => each === trust).length;
    if (trusts.filter(isUnlost).length >= needed || (mayLose && count('suspect') >= needed)) return true;
    if (allPromised && side === view.joint) return true;
    return trusts.length === side.length && (mayBeginLost || count('lost') < side.length);
  });
}

/** Whether a replica of this trust has all that it ever acknowledged. */
function isUnlost(trust: Trust | undefined): boolean {
  return trust === 'intact' || trust === 'damaged';
}

/** A replica reset at its candidate: promises, choice of the base, installations. */
export class Reset {
  readonly epoch: Epoch;
  readonly #self: ServerId;
  /** The view at the start. The base may have a newer one. */
  readonly #ownView: View;
  readonly #mayBeginLost: boolean;
  readonly #patientUntilMs: number;
  readonly #promises = new Map<ServerId, Promised>();
  readonly #installed = new Map<ServerId, number>();
  #base: Base | null = null;
  #distrusted = false;

  /** @param patientUntilMs wait this long for others, if an acknowledged operation might be lost without them */
  constructor(epoch: Epoch, view: View, self: ServerId, mayBeginLost: boolean, patientUntilMs: number) {
    this.epoch = epoch;
    this.#ownView = view;
    this.#self = self;
    this.#mayBeginLost = mayBeginLost;
    this.#patientUntilMs = patientUntilMs;
  }

  get base(): Base | null {
    return this.#base;
  }

  /** The view of the epoch: the base's. */
  get view(): View {
    const base = this.#base;
    return base === null ? this.#ownView : this.#viewAt(base);
  }

  #viewAt({ holder }: Base): View {
    return this.#promises.get(holder)?.view ?? this.#ownView;
  }

  /** The base's epoch if the base has all that was acknowledged in it; else, or before the choice, null. */
  get inheritedFrom(): Epoch | null {
    const base = this.#base;
    if (base === null) return null;
    const isWhole = [this.#ownView, this.view].every((view) =>
      viewHasMajority(view, (server) => isUnlost(this.#promises.get(server)?.trust)),
    );
    return isWhole ? base.position.epoch : null;
  }

  get voters(): ReadonlySet<ServerId> {
    const views = [this.#ownView, ...[...this.#promises.values()].map(({ view }) => view)];
    return new Set(views.flatMap((view) => [...viewVoters(view)]));
  }

  get installed(): ReadonlyMap<ServerId, number> {
    return this.#installed;
  }

  hasPromised(member: ServerId): boolean {
    return this.#promises.has(member);
  }

  /**
   * Whether a member needs only the stamp: the base is here, and the member promised from that position. While the
   * base must be fetched no member is stamped, or the base would move under the fetch.
   */
  needsOnlyStamp(member: ServerId): boolean {
    const base = this.#base;
    const promised = this.#promises.get(member);
    if (base === null || base.holder !== this.#self || promised === undefined) return false;
    return positionCompare(promised.position, base.position) === 0;
  }

  hasInstalled(member: ServerId): boolean {
    return this.#installed.has(member);
  }

  /** Of repeated answers the first counts: a replica that promised does not move. */
  addPromise(member: ServerId, promised: Promised): void {
    if (this.#base === null && !this.#promises.has(member)) this.#promises.set(member, promised);
  }

  /**
   * @returns the base, once enough replicas promised, this one among them; chosen once. The local promise is
   *   required, so that no primary lacks its own epoch.
   *
   * Enough by the local view, and by the base's. A server with an old view finds the newer one at one of a majority
   * of the old, because both majorities had the change of members before it counted.
   */
  choose(nowMs: number): Base | null {
    if (this.#base !== null) return this.#base;
    if (!this.#promises.has(this.#self) || !this.#suffices(this.#ownView, nowMs)) return null;
    const base = authoritativeState(this.#promises, this.#self);
    if (!this.#suffices(this.#viewAt(base), nowMs)) return null;
    this.#base = base;
    return base;
  }

  /** @returns true once, for a trace: a majority promised, but operations may be lost, so that `choose` waits */
  noticeDistrust(): boolean {
    if (this.#distrusted || !this.#promises.has(this.#self)) return false;
    const promised = (server: ServerId): boolean => this.#promises.has(server);
    const views = [this.#ownView, this.#viewAt(authoritativeState(this.#promises, this.#self))];
    this.#distrusted = views.every((view) => viewHasMajority(view, promised));
    return this.#distrusted;
  }

  #suffices(view: View, nowMs: number): boolean {
    const mayLose = nowMs >= this.#patientUntilMs;
    return promisesSuffice(view, this.#promises, { mayBeginLost: this.#mayBeginLost, mayLose });
  }

  noteInstalled(member: ServerId, seq: number): void {
    assert(this.#base !== null, 'What is installed was chosen');
    if (seq >= this.#base.position.seq) this.#installed.set(member, seq);
  }

  /** Whether a majority has the base, this replica included. Serving earlier would show a state that may vanish. */
  isComplete(): boolean {
    if (!this.#installed.has(this.#self)) return false;
    return viewHasMajority(this.view, (server) => this.#installed.has(server));
  }

  forget(member: ServerId): void {
    if (this.#base === null) this.#promises.delete(member);
    this.#installed.delete(member);
  }
}
