import type { Logger } from 'pino';
import { unreachable } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import { type CellId, type Incarnation, isVolumeCatalogCell, type ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { LeaseMark, LeaseView } from '../../lease/actions.ts';
import type { KnownView } from '../../lease/group.ts';
import type { LeaseAlgorithm, LeaseTiming } from '../../lease/parameters.ts';
import type { View } from '../../replica/view.ts';
import { viewVoters } from '../../replica/view.ts';
import type { Clock } from '../process/clock.ts';
import { CHANNEL_LEASE, type Transport } from '../transport/transport.ts';
import { CLOCK_CHECK_MS, type EarlierTiming, type LeaseEventReport, LeaseLink } from './lease-link.ts';
import type { WakeQueue } from './wake-queue.ts';

/** The jitter of attempts is this part of a lease: with few competitors, a rare collision costs less than a delay. */
const JITTERS_PER_LEASE = 400;
const JITTER_MS_MAX = 5;
/** Members of a volume's catalog wait this part of a lease longer than the member before them in the view. */
const HANDICAPS_PER_LEASE = 20;

export interface LeaseDriverParts extends LeaseTiming {
  readonly self: ServerId;
  readonly peers: readonly ServerId[];
  readonly algorithm: LeaseAlgorithm;
  readonly world: World;
  readonly clock: Clock;
  readonly wakes: WakeQueue;
  readonly log: Logger;
  readonly earlier?: EarlierTiming;
  drawIncarnation(): Incarnation;
  /** A function, because the transport is created after its handlers, one of which is this driver. */
  transport(): Transport;
  /** The recorded view of a cell whose members have changed at some time; null for all others. */
  knownView(cell: CellId): View | null;
  readonly mayAcquire?: (cell: CellId, peer: ServerId) => boolean;
  /** This server has the lease until `untilMs` (process clock; 0: lost), decided in view `view` (0: as reported). */
  ownLeaseChanged(cell: CellId, untilMs: number, view: number): void;
  /** Another server's lease is valid until `untilMs` (process clock), as far as this server knows. */
  otherLeaseLearned?(cell: CellId, holder: ServerId, untilMs: number): void;
  /** This server's lease clock was out of bounds: all its leases have ended. */
  faulted?(): void;
  fatal(error: unknown): void;
}

/** Leases of files and of the catalog: cells wanted here, their holders, and listeners for changes. */
export class LeaseDriver {
  readonly #parts: LeaseDriverParts;
  readonly #link: LeaseLink;
  readonly #listeners = new Map<CellId, Set<() => void>>();
  /** The cells that this server wants, to request them again after a restart of the lease layer. */
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
      // A server is primary of few of them.
      renewsTogether: isVolumeCatalogCell,
      jitterMaxMs: Math.min(JITTER_MS_MAX, parts.leaseMs / JITTERS_PER_LEASE),
      options: '--lease, --clock-skew or --lease-algorithm',
      send: (to, frame, deferrable) => parts.transport().send(to, CHANNEL_LEASE, frame, { deferrable }),
      report: (action) => this.#report(action),
      // The host has reported each lease as lost.
      faulted: () => parts.faulted?.(),
      restarted: () => {
        for (const [cell, view] of this.#opened) this.open(cell, view);
      },
    });
  }

  /** From now on this server tries to acquire the cell's lease while it has no holder. */
  open(cell: CellId, view: View): void {
    if (!viewVoters(view).includes(this.#parts.self)) return;
    this.#opened.set(cell, view);
    const { number, members, joint } = view;
    const handicapMs = this.#handicapMs(cell, view);
    this.#link.step(
      joint === undefined
        ? { kind: 'open', cell, view: number, members, handicapMs }
        : { kind: 'open', cell, view: number, members, joint, handicapMs },
    );
  }

  /** The order of a catalog's members spreads the primaries, and its members do not collide at its creation. */
  #handicapMs(cell: CellId, { members }: View): number {
    const { self, leaseMs } = this.#parts;
    if (!isVolumeCatalogCell(cell)) return 0;
    // A member that is to leave comes last.
    const place = members.includes(self) ? members.indexOf(self) : members.length;
    return (place * leaseMs) / HANDICAPS_PER_LEASE;
  }

  /** Whether this server tries to acquire the cell's lease, or has it. */
  isOpen(cell: CellId): boolean {
    return this.#opened.has(cell);
  }

  /** The members of the cell changed: the cell uses the new view, and is closed if this server is no member. */
  viewChanged(cell: CellId, view: View): void {
    if (!this.#opened.has(cell)) this.#link.step({ kind: 'view', cell, ...this.#viewOf(view) });
    else if (viewVoters(view).includes(this.#parts.self)) this.open(cell, view);
    // A primary that is no longer a member keeps the lease until it has stopped, and releases it then.
    else if (!this.view(cell).own) {
      this.close(cell);
      this.#link.step({ kind: 'view', cell, ...this.#viewOf(view) });
    }
  }

  /** The holder `from` will release the lease, and has chosen this server, which has opened the cell, as the next. */
  succeed(cell: CellId, from: ServerId): void {
    this.#link.step({ kind: 'succeed', cell, from });
  }

  close(cell: CellId): void {
    this.#opened.delete(cell);
    this.#link.step({ kind: 'close', cell });
  }

  disconnected(peer: ServerId): void {
    this.#link.step({ kind: 'disconnected', peer });
  }

  /** To be called once the replica has stopped acting as primary. */
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

  isClockSound(): boolean {
    return this.#link.isClockSound();
  }

  stopCompeting(): void {
    this.#retired = true;
  }

  isUsable(): boolean {
    return !this.#retired && !this.clockFault && this.recoveringMs() <= 0;
  }

  /** @throws ServiceError `not-primary`, `clock-fault` or `recovering` while this server takes part in no lease */
  assertUsable(): void {
    if (this.#retired) throw new ServiceError('not-primary', `Server ${this.#parts.self} is shutting down`);
    if (this.clockFault) {
      throw new ServiceError(
        'clock-fault',
        `Server ${this.#parts.self} takes part in no lease: its clock jumped, or differs from most others ` +
          'by more than --clock-skew; check NTP',
        {
          retryAfterMs: CLOCK_CHECK_MS,
        },
      );
    }
    const leftMs = this.recoveringMs();
    if (leftMs > 0) {
      throw new ServiceError(
        'recovering',
        `Server ${this.#parts.self} is in its recovery wait for another ${Math.ceil(leftMs)} ms, until all ` +
          'leases from before its start have ended',
        { retryAfterMs: Math.ceil(leftMs) },
      );
    }
  }

  /** How far each peer's lease clock is ahead of ours, if known: the true value is within offset ± error. */
  clockOffsets(): Record<string, { offsetMs: number; errorMs: number }> {
    const offsets: Record<string, { offsetMs: number; errorMs: number }> = {};
    for (const peer of this.#parts.peers) {
      const offset = this.#link.host.clockOffset(peer);
      if (offset === null) continue;
      offsets[peer] = { offsetMs: hundredths(offset.offsetMs), errorMs: hundredths(offset.errorMs) };
    }
    return offsets;
  }

  marks(): ReadonlyMap<LeaseMark, number> {
    return this.#link.marks();
  }

  get cellCount(): number {
    return this.#link.host.cellCount;
  }

  /** @returns what to call to unsubscribe */
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

  /** Logs and drops malformed frames. */
  receive(from: ServerId, payload: Uint8Array): void {
    this.#link.receive(from, payload);
  }

  closeDriver(): void {
    this.#link.close();
  }

  #report(action: LeaseEventReport): void {
    switch (action.kind) {
      case 'held':
        this.#parts.ownLeaseChanged(action.cell, this.#link.processMs(action.untilMs), action.view);
        this.#notify(action.cell);
        return;
      case 'lost':
        this.#parts.ownLeaseChanged(action.cell, 0, 0);
        this.#notify(action.cell);
        return;
      case 'learned':
        this.#parts.otherLeaseLearned?.(action.cell, action.holder, this.#link.processMs(action.untilMs));
        this.#notify(action.cell);
        return;
      case 'answered':
      case 'claimed':
        // Clients claim no cells of files; such a message is ignored.
        return;
      default:
        unreachable(action);
    }
  }

  #notify(cell: CellId): void {
    const listeners = this.#listeners.get(cell);
    if (listeners !== undefined) for (const listener of [...listeners]) listener();
  }

  /**
   * A server that is no member of a view still votes by the one before, in which both sets vote: the new view may not
   * have reached any other server. If it has, a majority of its own members refuses the one before.
   */
  #viewOf(view: View): KnownView {
    const { number, members, joint } = view;
    if (!viewVoters(view).includes(this.#parts.self)) return { view: number - 1, members };
    return joint === undefined ? { view: number, members } : { view: number, members, joint };
  }
}

function hundredths(value: number): number {
  return Math.round(value * 100) / 100;
}
