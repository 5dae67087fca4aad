import type { Logger } from 'pino';
import { unreachable } from '../base/assert.ts';
import { ServiceError } from '../base/errors.ts';
import type { CellId, Incarnation, ServerId } from '../base/ids.ts';
import type { World } from '../base/world.ts';
import type { LeaseMark, LeaseView } from '../lease/actions.ts';
import type { KnownView } from '../lease/group.ts';
import type { LeaseAlgorithm, LeaseTiming } from '../lease/parameters.ts';
import type { View } from '../replica/view.ts';
import { viewVoters } from '../replica/view.ts';
import type { Clock } from './clock.ts';
import { CLOCK_CHECK_MS, type FormerTiming, LeaseLink, type LeaseNews } from './lease-link.ts';
import { CHANNEL_LEASE, type Transport } from './transport/transport.ts';
import type { WakeQueue } from './wake-queue.ts';

/**
 * Servers compete for a file only if clients ask them for it, which are seldom many: rather two that collide now and
 * then, and try again a moment later, than writes that wait for all whenever a primary died.
 */
const JITTERS_PER_LEASE = 400;
const JITTER_MS_MAX = 5;

export interface LeaseDriverParts extends LeaseTiming {
  readonly self: ServerId;
  readonly peers: readonly ServerId[];
  readonly algorithm: LeaseAlgorithm;
  readonly world: World;
  readonly clock: Clock;
  readonly wakes: WakeQueue;
  readonly log: Logger;
  readonly former?: FormerTiming;
  drawIncarnation(): Incarnation;
  /** The transport, which is made after its handlers, of which this driver is one. */
  transport(): Transport;
  /** The view of a file whose members ever changed, as it is on disk; null for all others. */
  knownView(cell: CellId): View | null;
  /** @see LeaseLinkParts.mayAcquire */
  readonly mayAcquire?: (cell: CellId, peer: ServerId) => boolean;
  /** Own lease of `cell` until `untilMs` (the process clock), by `view` (0: told again); 0 when it is held no longer. */
  changed(cell: CellId, untilMs: number, view: number): void;
  /** Another server holds the lease of `cell` until `untilMs` (the process clock), as was heard. Absent where nobody listens. */
  heard?(cell: CellId, holder: ServerId, untilMs: number): void;
  /** The own clock was found out of bounds, and the lease layer begins anew. Absent where nobody listens. */
  faulted?(): void;
  fatal(error: unknown): void;
}

/** Leases of files and of the catalog: what is wanted here, who holds it, and who waits for a change of that. */
export class LeaseDriver {
  readonly #parts: LeaseDriverParts;
  readonly #link: LeaseLink;
  readonly #listeners = new Map<CellId, Set<() => void>>();
  /** What is wanted here, for a lease layer that begins anew. */
  readonly #opened = new Map<CellId, View>();
  #retired = false;

  constructor(parts: LeaseDriverParts) {
    this.#parts = parts;
    this.#link = new LeaseLink({
      ...parts,
      knownView: (cell) => {
        const view = parts.knownView(cell);
        return view === null ? null : this.#viewOf(view);
      },
      jitterMaxMs: Math.min(JITTER_MS_MAX, parts.leaseMs / JITTERS_PER_LEASE),
      options: '--lease, --clock-skew or --lease-algorithm',
      send: (to, frame, deferrable) => parts.transport().send(to, CHANNEL_LEASE, frame, { deferrable }),
      news: (action) => this.#news(action),
      // The host has said of each lease that it is lost.
      faulted: () => parts.faulted?.(),
      begun: () => {
        for (const [cell, view] of this.#opened) this.open(cell, view);
      },
    });
  }

  /** This server wants the cell to have a holder, and is willing to be it. */
  open(cell: CellId, view: View): void {
    if (!viewVoters(view).includes(this.#parts.self)) return;
    this.#opened.set(cell, view);
    this.#link.step({ kind: 'open', cell, ...this.#viewOf(view), handicapMs: 0 });
  }

  /** The members of the cell change: the lease goes by the new view, and is given up where this server is out. */
  follow(cell: CellId, view: View): void {
    if (!this.#opened.has(cell)) this.#link.step({ kind: 'view', cell, ...this.#viewOf(view) });
    else if (viewVoters(view).includes(this.#parts.self)) this.open(cell, view);
    // A primary that is out gives its lease back when it has stopped.
    else if (!this.view(cell).own) {
      this.close(cell);
      this.#link.step({ kind: 'view', cell, ...this.#viewOf(view) });
    }
  }

  /** The holder is about to give the lease back, and has chosen this server, which wants the cell, to be the next. */
  succeed(cell: CellId, from: ServerId): void {
    this.#link.step({ kind: 'succeed', cell, from });
  }

  close(cell: CellId): void {
    this.#opened.delete(cell);
    this.#link.step({ kind: 'close', cell });
  }

  /** The connection to a peer is gone: leases need not wait for its answers. */
  disconnected(peer: ServerId): void {
    this.#link.step({ kind: 'away', peer });
  }

  /** The replica has stopped acting as primary. */
  release(cell: CellId): void {
    this.#link.step({ kind: 'release', cell });
  }

  view(cell: CellId): LeaseView {
    return this.#link.host.view(cell, this.#link.nowMs());
  }

  recoveringMs(): number {
    return this.#link.recoveringMs();
  }

  get clockFault(): boolean {
    return this.#link.host.clockFault;
  }

  /** @see LeaseLink.isClockSound */
  isClockSound(): boolean {
    return this.#link.isClockSound();
  }

  /** The server is about to end: it wants no lease any more. */
  retire(): void {
    this.#retired = true;
  }

  /** Whether this server takes part in leases at this moment; see `assertUsable`. */
  isUsable(): boolean {
    return !this.#retired && !this.clockFault && this.recoveringMs() <= 0;
  }

  /** @throws ServiceError `not-primary`, `clock-fault` or `recovering` while this server takes part in no lease */
  assertUsable(): void {
    if (this.#retired) throw new ServiceError('not-primary', `Server ${this.#parts.self} is about to end`);
    if (this.clockFault) {
      throw new ServiceError('clock-fault', `The clock of server ${this.#parts.self} is out of bounds`, {
        retryAfterMs: CLOCK_CHECK_MS,
      });
    }
    const leftMs = this.recoveringMs();
    if (leftMs > 0) {
      throw new ServiceError(
        'recovering',
        `Server ${this.#parts.self} waits ${Math.ceil(leftMs)} ms more for leases from before its start to end`,
        { retryAfterMs: Math.ceil(leftMs) },
      );
    }
  }

  /** How far each peer's lease clock is ahead of ours, where that is known: the truth lies within offset ± error. */
  clockOffsets(): Record<string, { offsetMs: number; errorMs: number }> {
    const offsets: Record<string, { offsetMs: number; errorMs: number }> = {};
    for (const peer of this.#parts.peers) {
      const offset = this.#link.host.clockOffset(peer);
      if (offset === null) continue;
      offsets[peer] = { offsetMs: hundredths(offset.offsetMs), errorMs: hundredths(offset.errorMs) };
    }
    return offsets;
  }

  /** How often each mark of the lease layer was reached since the start. */
  marks(): ReadonlyMap<LeaseMark, number> {
    return this.#link.marks();
  }

  get cellCount(): number {
    return this.#link.host.cellCount;
  }

  /** Calls back when anything about the cell's lease changes, until the returned function is called. */
  onChange(cell: CellId, listener: () => void): () => void {
    const listeners = this.#listeners.get(cell) ?? new Set();
    listeners.add(listener);
    this.#listeners.set(cell, listeners);
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0) this.#listeners.delete(cell);
    };
  }

  /** Resolves when another server is known to hold the cell's lease. */
  heldElsewhere(cell: CellId): Promise<void> {
    const isHeld = (): boolean => {
      const { own, holder } = this.view(cell);
      return !own && holder !== null;
    };
    return new Promise((resolve) => {
      if (isHeld()) {
        resolve();
        return;
      }
      const off = this.onChange(cell, () => {
        if (!isHeld()) return;
        off();
        resolve();
      });
    });
  }

  /** A frame of a peer. Malformed ones are logged and dropped. */
  receive(from: ServerId, payload: Uint8Array): void {
    this.#link.receive(from, payload);
  }

  closeDriver(): void {
    this.#link.close();
  }

  #news(action: LeaseNews): void {
    switch (action.kind) {
      case 'held':
        this.#parts.changed(action.cell, this.#link.processMs(action.untilMs), action.view);
        this.#notify(action.cell);
        return;
      case 'lost':
        this.#parts.changed(action.cell, 0, 0);
        this.#notify(action.cell);
        return;
      case 'learned':
        this.#parts.heard?.(action.cell, action.holder, this.#link.processMs(action.untilMs));
        this.#notify(action.cell);
        return;
      case 'answered':
      case 'claimed':
        // Clients claim no cells of files; a peer that says so is not heard.
        return;
      default:
        unreachable(action);
    }
  }

  #notify(cell: CellId): void {
    for (const listener of [...(this.#listeners.get(cell) ?? [])]) listener();
  }

  /**
   * Whoever is out by a view still votes by the one before, in which both sets do: the new view may not have come to
   * anybody else. Where it has, a majority of its own members refuses the one before.
   */
  #viewOf({ number, members, joint }: View): KnownView {
    if (
      !viewVoters({ number, members, ...(joint === undefined ? {} : { joint }) }).includes(this.#parts.self)
    ) {
      return { view: number - 1, members };
    }
    return { view: number, members, ...(joint === undefined ? {} : { joint }) };
  }
}

function hundredths(value: number): number {
  return Math.round(value * 100) / 100;
}
