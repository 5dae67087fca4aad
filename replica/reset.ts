import { assert } from '../base/assert.ts';
import type { ServerId } from '../base/ids.ts';
import { majority } from '../base/quorum.ts';
import type { Epoch, Position } from './epoch.ts';
import { positionCompare } from './epoch.ts';
import type { Trust } from './record.ts';
import type { View } from './view.ts';
import { viewHasMajority, viewSides, viewVoters } from './view.ts';

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
export function authoritative(
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

/** What a replica said with its promise. */
export interface Promised {
  readonly position: Position;
  readonly view: View;
  readonly trust: Trust;
}

/**
 * Whether these promises show all that was acknowledged, one side of the view at a time:
 *
 * - a majority of replicas that are intact: each acknowledged operation was on a majority, which shares one
 *   with this; or
 * - a majority at all, if a majority has lost power: then only what was synced is owed, and every majority has
 *   a replica that synced it. Not before others had time to answer (`mayLose`), who may have what was not; or
 * - all, so that what is left anywhere is here. Not if nothing can be left anywhere: a subject all of whose
 *   stores were replaced does not begin anew as an empty one, unless it may.
 *
 * Members to come whose stores were all replaced have nothing left that the members before them lack, as long as both
 * sets vote: so they hold nothing up, once everybody has promised, and nobody is left who could know of an end of the change.
 */
export function promisesSuffice(
  view: View,
  promises: ReadonlyMap<ServerId, Promised>,
  { mayBeginLost, mayLose }: { readonly mayBeginLost: boolean; readonly mayLose: boolean },
): boolean {
  const everybody = viewVoters(view).every((server) => promises.has(server));
  return viewSides(view).every((side) => {
    const needed = majority(side.length);
    const trusts = side.flatMap((server) => promises.get(server)?.trust ?? []);
    const count = (trust: Trust): number => trusts.filter((each) => each === trust).length;
    if (trusts.filter(isUnlost).length >= needed || (mayLose && count('suspect') >= needed)) return true;
    if (everybody && side === view.joint) return true;
    return trusts.length === side.length && (mayBeginLost || count('lost') < side.length);
  });
}

/** Whether a replica of this trust has lost nothing that it ever acknowledged. */
function isUnlost(trust: Trust | undefined): boolean {
  return trust === 'intact' || trust === 'damaged';
}

/** Replica reset as the new primary sees it: promises in, base chosen, installations in. */
export class Reset {
  readonly epoch: Epoch;
  readonly #self: ServerId;
  /** By which this server began. The base may bring a newer one. */
  readonly #ownView: View;
  readonly #mayBeginLost: boolean;
  readonly #patientUntilMs: number;
  readonly #promises = new Map<ServerId, Promised>();
  readonly #installed = new Map<ServerId, number>();
  #base: Base | null = null;
  #distrusted = false;

  /** @param patientUntilMs so long others are waited for, if without them something acknowledged might be lost */
  constructor(epoch: Epoch, view: View, self: ServerId, mayBeginLost: boolean, patientUntilMs: number) {
    this.epoch = epoch;
    this.#ownView = view;
    this.#self = self;
    this.#mayBeginLost = mayBeginLost;
    this.#patientUntilMs = patientUntilMs;
  }

  /** The base once it is chosen. */
  get base(): Base | null {
    return this.#base;
  }

  /** By this view the epoch begins: the base's. */
  get view(): View {
    const base = this.#base;
    return base === null ? this.#ownView : this.#viewAt(base);
  }

  #viewAt({ holder }: Base): View {
    return this.#promises.get(holder)?.view ?? this.#ownView;
  }

  /**
   * In which epoch the base stood, where it has all that was acknowledged by then; null where a loss of power may have taken some of it, or
   * nothing was chosen yet.
   */
  get inheritedFrom(): Epoch | null {
    const base = this.#base;
    if (base === null) return null;
    const isWhole = [this.#ownView, this.view].every((view) =>
      viewHasMajority(view, (server) => isUnlost(this.#promises.get(server)?.trust)),
    );
    return isWhole ? base.position.epoch : null;
  }

  /** All whose promises count by any view that is known of. */
  get voters(): ReadonlySet<ServerId> {
    const views = [this.#ownView, ...[...this.#promises.values()].map(({ view }) => view)];
    return new Set(views.flatMap((view) => [...viewVoters(view)]));
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
    const promised = this.#promises.get(member);
    if (base === null || base.holder !== this.#self || promised === undefined) return false;
    return positionCompare(promised.position, base.position) === 0;
  }

  hasInstalled(member: ServerId): boolean {
    return this.#installed.has(member);
  }

  /** Of a repeated answer the first counts: a replica that has promised does not move. */
  promise(member: ServerId, promised: Promised): void {
    if (this.#base === null && !this.#promises.has(member)) this.#promises.set(member, promised);
  }

  /**
   * @returns the base, as soon as enough have promised, this replica among them; chosen once.
   *   The own promise is required, so that an epoch is never led by a replica it is not installed at.
   *
   * Enough by the own view, and by the base's: whoever goes by an old view finds the newer one at one of a
   * majority of the old, because a change of members was on a majority of both before it counted.
   */
  choose(nowMs: number): Base | null {
    if (this.#base !== null) return this.#base;
    if (!this.#promises.has(this.#self) || !this.#suffices(this.#ownView, nowMs)) return null;
    const base = authoritative(this.#promises, this.#self);
    if (!this.#suffices(this.#viewAt(base), nowMs)) return null;
    this.#base = base;
    return base;
  }

  /** @returns whether a majority has promised, but cannot be believed to have all that was acknowledged; told once */
  noticeDistrust(): boolean {
    if (this.#distrusted || !this.#promises.has(this.#self)) return false;
    const promised = (server: ServerId): boolean => this.#promises.has(server);
    const views = [this.#ownView, this.#viewAt(authoritative(this.#promises, this.#self))];
    this.#distrusted = views.every((view) => viewHasMajority(view, promised));
    return this.#distrusted;
  }

  #suffices(view: View, nowMs: number): boolean {
    const mayLose = nowMs >= this.#patientUntilMs;
    return promisesSuffice(view, this.#promises, { mayBeginLost: this.#mayBeginLost, mayLose });
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
    if (!this.#installed.has(this.#self)) return false;
    return viewHasMajority(this.view, (server) => this.#installed.has(server));
  }

  /** The member came back as another process: ask it again. */
  forget(member: ServerId): void {
    if (this.#base === null) this.#promises.delete(member);
    this.#installed.delete(member);
  }
}
