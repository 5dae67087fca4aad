import { assert } from '../base/assert.ts';
import type { Incarnation, ServerId } from '../base/ids.ts';
import { MalformedError } from '../wire/bytes.ts';
import type { ReplicaConfig } from './actions.ts';
import type { Epoch, Position } from './epoch.ts';
import { epochEqual, epochFormat, POSITION_ZERO, positionCompare, positionFormat } from './epoch.ts';
import type { Guard } from './guard.ts';
import type { LocalFlush } from './local-flush.ts';
import { LIFE_UNKNOWN, type PrimaryMessage } from './messages.ts';
import type { Outbox } from './outbox.ts';
import type { ReadLease } from './read-lease.ts';
import { SessionTable } from './sessions.ts';
import { type Standing, sessionsAfter } from './standing.ts';
import { type View, viewsConflict } from './view.ts';

type Write = Extract<PrimaryMessage, { readonly kind: 'write' }>;

/** Operations of a first epoch that are kept while its beginning is stored; those behind them are asked for again. */
const EARLY_MAX = 64;

/**
 * The replica's half of reset and write: promise, install, apply, acknowledge. Every replica runs
 * it, also a candidate for its own installation; only answers to *other* servers go out.
 */
export class Backup {
  readonly #self: ServerId;
  readonly #out: Outbox;
  readonly #standing: Standing;
  readonly #localFlush: LocalFlush;
  readonly #guard: Guard;
  readonly #incarnation: Incarnation;
  readonly #readLease: ReadLease;
  /** The promised epoch's candidate waits for the promise. */
  #owesPromise = false;
  /** What came right behind `begin`. */
  #early: Write[] = [];
  /** It was asked already for the operations from here on: one lost message is asked for once. */
  #askedSeq = 0;
  /** What the primary of the installed epoch said is committed. */
  #heardCommittedSeq = 0;
  /** When the primary was last heard to have committed nothing that is not here. */
  currentAtMs = -Infinity;
  /** The last operation known here to be committed. Per process life; at most `standing.seq`. */
  #committedSeq = 0;
  /** What is being stored is another's state, of another epoch than the one that the commit point was heard in. */
  #replaces = false;

  constructor(
    { self, incarnation }: Pick<ReplicaConfig, 'self' | 'incarnation'>,
    out: Outbox,
    standing: Standing,
    localFlush: LocalFlush,
    guard: Guard,
    readLease: ReadLease,
  ) {
    this.#self = self;
    this.#incarnation = incarnation;
    this.#guard = guard;
    this.#readLease = readLease;
    this.#out = out;
    this.#standing = standing;
    this.#localFlush = localFlush;
  }

  get committedSeq(): number {
    return this.#committedSeq;
  }

  /** @param message of the promised epoch; smaller ones were refused, for larger ones it was raised */
  message(message: PrimaryMessage, nowMs: number): void {
    const { epoch } = message;
    assert(epochEqual(epoch, this.#standing.promised), 'Only the promised epoch is listened to');
    assert(epoch.server !== this.#self, 'Nobody else speaks for this server');
    switch (message.kind) {
      case 'prepare':
        this.#owesPromise = true;
        return;
      case 'install':
        this.#onInstall(epoch, message.base, message.to, message.urgent);
        return;
      case 'begin':
        // Not for the first time, or not in time: then it is told as to any other replica that needs only the stamp.
        this.#onInstall(epoch, POSITION_ZERO, LIFE_UNKNOWN, true);
        return;
      case 'write':
        this.#onWrite(message);
        return;
      case 'heartbeat':
        this.#onHeartbeat(message, nowMs);
        return;
      case 'flush':
        if (epochEqual(epoch, this.#standing.installed)) this.#onFlush(epoch, message.seq);
        return;
      case 'commit':
        if (epochEqual(epoch, this.#standing.installed)) this.#hearCommitted(message.committedSeq);
        return;
      case 'read-grant':
        this.#onReadGrant(message);
        return;
    }
  }

  /** A larger epoch was promised: what the older one still waits for is no concern any more. */
  promisedAnew(): void {
    this.#owesPromise = false;
    this.#readLease.drop();
    this.#early = [];
  }

  // Reset ------------------------------------------------------------------------------------------

  /** Does what has become possible: gives the promise, takes the base, flushes. */
  advance(): void {
    const { promised } = this.#standing;
    if (this.#owesPromise && this.#standing.settled) {
      this.#owesPromise = false;
      this.#out.trace('promised', `${epochFormat(promised)} from ${positionFormat(this.#standing.position)}`);
      this.#out.send(promised.server, {
        kind: 'promise',
        epoch: promised,
        position: this.#standing.position,
        view: this.#standing.view,
        trust: this.#standing.trust,
      });
    }
    this.#beginInstall();
    this.#localFlush.advance();
  }

  #onInstall(epoch: Epoch, base: Position, to: Incarnation, urgent: boolean): void {
    const standing = this.#standing;
    if (standing.install !== null) return;
    const trusted = standing.trust === 'intact';
    // What was sent before the primary heard of the loss says nothing of what this replica may have had by then.
    const meant = trusted || to === this.#incarnation;
    if (this.#has(epoch, base) && (trusted || !meant)) {
      this.#out.send(epoch.server, { kind: 'installed', epoch, seq: standing.seq });
      return;
    }
    if (!meant) {
      // It is not known there which life this is, and nothing else may be said to it: a promise tells.
      this.#owesPromise = true;
      return;
    }
    // A primary that applies last is behind what it has counted of this replica, and soon will not be.
    if (epochEqual(epoch, standing.installed) && base.seq < standing.seq) return;
    this.take(epoch, base, epoch.server, urgent);
  }

  /** Begins to take over `base` for the promised epoch, from `from` unless it is here already. */
  take(epoch: Epoch, base: Position, from: ServerId, urgent: boolean): void {
    const standing = this.#standing;
    assert(epochEqual(epoch, standing.promised), 'Only the promised epoch is installed');
    const { view } = standing;
    standing.install = {
      epoch,
      base,
      from,
      urgent,
      stage: 'waiting',
      seq: 0,
      view,
      sessions: SessionTable.EMPTY,
    };
  }

  #has(epoch: Epoch, base: Position): boolean {
    return epochEqual(this.#standing.installed, epoch) && this.#standing.seq >= base.seq;
  }

  /**
   * Only with the disk at rest is the own position what it will be, so only then can it be compared
   * with the base; and what is fetched is what differs from contents that change no more.
   */
  #beginInstall(): void {
    const standing = this.#standing;
    const { install } = standing;
    if (install === null || install.stage !== 'waiting' || !standing.settled) return;
    const { epoch, base } = install;
    const { seq, view, sessions } = standing;
    if (this.#has(epoch, base) && standing.trust === 'intact') {
      // Operations under way filled the gap meanwhile.
      standing.install = null;
      this.#out.send(epoch.server, { kind: 'installed', epoch, seq });
    } else if (this.#has(epoch, base) && standing.trust !== 'damaged') {
      // After a loss of power it has caught up with all that the primary had when it heard of that.
      this.#out.trace('trusted-again', `${epochFormat(epoch)} at ${seq}`);
      standing.storeInstall(install, { seq, view, sessions }, false);
    } else if (positionCompare(standing.position, base) === 0 && !this.#isRepairedBy(install.from)) {
      // Stamping: the contents stay, but from now on they are of the new epoch. Otherwise the tail
      // of an older epoch could later win over a newer base that looks shorter.
      this.#out.trace('stamped', `${epochFormat(epoch)} over ${positionFormat(base)}`);
      standing.storeInstall(install, { seq: base.seq, view, sessions }, false);
    } else {
      install.stage = 'fetching';
      this.#out.push({ kind: 'fetch-state', epoch, from: install.from, urgent: install.urgent });
    }
  }

  /** Contents that cannot be read come with another replica's state. Where there is none, they are repaired as they are read. */
  #isRepairedBy(from: ServerId): boolean {
    return this.#standing.trust === 'damaged' && from !== this.#self;
  }

  /**
   * The driver has the state of `install.from` beside the own contents.
   *
   * From a primary it may be any state of its epoch: the base and some operations after it. From
   * the holder of a base it must be the promised one: if it moved, it has followed another
   * candidate, and this epoch is over.
   *
   * @returns whether it is being stored; if not, the fetch was in vain
   */
  stateFetched(epoch: Epoch, position: Position, view: View, encodedSessions: Uint8Array): boolean {
    const standing = this.#standing;
    const { install } = standing;
    if (install === null || install.stage !== 'fetching' || !epochEqual(install.epoch, epoch)) return true;
    const sessions = sessionsDecoded(encodedSessions);
    const own = epoch.server === this.#self;
    const stands = own
      ? positionCompare(position, install.base) === 0
      : epochEqual(position.epoch, epoch) && position.seq >= install.base.seq;
    const fits = stands && !viewsConflict(view, standing.view);
    if (sessions === null || !fits) {
      standing.install = null;
      this.#out.trace('fetch-failed', `${positionFormat(position)} for ${positionFormat(install.base)}`);
      return false;
    }
    const within = epochEqual(standing.installed, epoch);
    this.#replaces = !within;
    this.#out.trace(within ? 'caught-up' : 'replaced', `${epochFormat(epoch)} from ${install.from}`);
    standing.storeInstall(install, { seq: position.seq, view, sessions }, true);
    return true;
  }

  /** @returns false if the fetch was needed, so that it was in vain */
  stateFailed(epoch: Epoch, reason: string): boolean {
    const { install } = this.#standing;
    if (install === null || install.stage !== 'fetching' || !epochEqual(install.epoch, epoch)) return true;
    this.#standing.install = null;
    this.#out.trace('fetch-failed', reason);
    return false;
  }

  /** The epoch is installed: tells its primary, unless it is over by now. */
  installed(epoch: Epoch): void {
    this.#askedSeq = 0;
    this.#heardCommittedSeq = 0;
    // After a majority has lost power a base may lack what this replica knew to be committed, and the state that it has fetched may have
    // something else at the same numbers that only a minority has. Contents that were only stamped are a base as a whole: the point stays true.
    if (this.#replaces) this.#committedSeq = 0;
    this.#replaces = false;
    this.#committedSeq = Math.min(this.#committedSeq, this.#standing.seq);
    if (epoch.server === this.#self || !epochEqual(epoch, this.#standing.promised)) return;
    for (const write of this.#early.splice(0)) this.#onWrite(write);
    // What is acknowledged in the epoch says so, too.
    if (!this.#standing.atRest) return;
    this.#out.send(epoch.server, { kind: 'installed', epoch, seq: this.#standing.seq });
  }

  /** This replica was primary until now, and committed up to `committedSeq`. */
  wasPrimaryUntil(committedSeq: number): void {
    this.#heardCommittedSeq = Math.max(this.#heardCommittedSeq, committedSeq);
    this.#committedSeq = Math.max(this.#committedSeq, committedSeq);
    assert(this.#committedSeq <= this.#standing.seq, 'What is committed is here');
  }

  // Write ------------------------------------------------------------------------------------------

  #onWrite(message: Write): void {
    const standing = this.#standing;
    const { epoch, seq, operation } = message;
    if (!epochEqual(epoch, standing.installed)) {
      if (standing.isBeginning) {
        if (this.#early.length < EARLY_MAX) this.#early.push(message);
        return;
      }
      this.#out.send(epoch.server, { kind: 'need-state', epoch, position: standing.position });
      return;
    }
    this.#hearCommitted(message.committedSeq);
    if (seq <= standing.seq) {
      this.#out.send(epoch.server, { kind: 'ack', epoch, seq: standing.seq });
      return;
    }
    // A store in doubt takes no operation before it is whole: it would not know on what.
    if (standing.trust !== 'intact') return;
    // Under way: acknowledged when applied. Or contents are being replaced: sent again afterwards.
    if (seq <= standing.issuedSeq || standing.install !== null) return;
    if (seq > standing.issuedSeq + 1) {
      this.#ask(epoch, false);
      return;
    }
    standing.apply(operation, sessionsAfter(standing.sessions, seq, operation), true);
  }

  /** An operation has been applied: acknowledges it, unless a larger epoch was promised meanwhile. */
  applied(): void {
    const { installed, promised, seq } = this.#standing;
    this.#moveCommitted();
    if (installed.server === this.#self || !epochEqual(installed, promised)) return;
    this.#out.send(installed.server, { kind: 'ack', epoch: installed, seq });
  }

  /** The guard binds although the promise may not be on the disk yet: after a crash the start has a guard of its own. */
  #onHeartbeat(message: Extract<PrimaryMessage, { kind: 'heartbeat' }>, nowMs: number): void {
    const standing = this.#standing;
    const { epoch, beat } = message;
    this.#guard.hold(epoch, nowMs, message.guardMs);
    if (epochEqual(epoch, standing.installed)) {
      this.#hearCommitted(message.committedSeq);
      // Without a guard it may be of who orders without a lease: others may have led since.
      if (message.guardMs > 0 && standing.seq >= message.committedSeq) this.currentAtMs = nowMs;
      const asks = standing.install === null && standing.trust === 'intact';
      if (message.sentSeq > standing.issuedSeq && asks) this.#ask(epoch, true);
    }
    const { position, trust } = standing;
    this.#out.send(epoch.server, { kind: 'heartbeat-ack', epoch, position, beat, trust });
  }

  // Local reads ------------------------------------------------------------------------------------

  /** Asks for a read lease, or the next one, if reads are wanted here and it is time. */
  askToRead(nowMs: number): void {
    const { installed, promised } = this.#standing;
    if (nowMs < this.#readLease.nextAskMs()) return;
    if (installed.counter === 0 || installed.server === this.#self || !epochEqual(installed, promised))
      return;
    const nonce = this.#readLease.ask(nowMs);
    this.#out.send(installed.server, { kind: 'read-request', epoch: installed, nonce });
  }

  #onReadGrant({
    epoch,
    nonce,
    durationMs,
    startSeq,
  }: Extract<PrimaryMessage, { kind: 'read-grant' }>): void {
    if (!epochEqual(epoch, this.#standing.installed)) return;
    if (!this.#readLease.granted(epoch, nonce, durationMs, startSeq)) return;
    this.#out.trace('read-lease', `from operation ${startSeq}`);
    this.#out.push({ kind: 'advanced', committedSeq: this.#committedSeq });
  }

  /**
   * Whether the answer to a read may be taken from here: no larger epoch was promised, the lease runs at this
   * very moment, and what the answer shows is known to be committed. Never the version before an operation that
   * is not: it may be committed elsewhere already.
   */
  readGate(dependsOnSeq: number, nowMs: number): 'serve' | 'wait' | 'not-primary' {
    const { installed, promised, seq } = this.#standing;
    if (!epochEqual(installed, promised) || !this.#readLease.covers(installed, seq, nowMs))
      return 'not-primary';
    return dependsOnSeq <= this.#committedSeq ? 'serve' : 'wait';
  }

  /** Asks for what is missing; `again` also where it was asked before, because that was lost. */
  #ask(epoch: Epoch, again: boolean): void {
    const fromSeq = this.#standing.issuedSeq + 1;
    if (this.#askedSeq === fromSeq && !again) return;
    this.#askedSeq = fromSeq;
    this.#out.trace('gap', `from operation ${fromSeq}`);
    this.#out.send(epoch.server, { kind: 'resend', epoch, fromSeq });
  }

  #hearCommitted(committedSeq: number): void {
    this.#heardCommittedSeq = Math.max(this.#heardCommittedSeq, committedSeq);
    this.#moveCommitted();
  }

  #moveCommitted(): void {
    const committedSeq = Math.min(this.#heardCommittedSeq, this.#standing.seq);
    if (committedSeq <= this.#committedSeq) return;
    this.#committedSeq = committedSeq;
    this.#out.push({ kind: 'advanced', committedSeq });
  }

  // Flush ------------------------------------------------------------------------------------------

  #onFlush(epoch: Epoch, seq: number): void {
    if (this.#localFlush.flushedSeq >= seq) {
      this.#out.send(epoch.server, { kind: 'flushed', epoch, seq: this.#localFlush.flushedSeq });
    } else {
      this.#localFlush.want(seq);
    }
  }

  /** More than before survives loss of power: tells the primary. */
  flushed(): void {
    const { installed, promised } = this.#standing;
    if (installed.server === this.#self || !epochEqual(installed, promised)) return;
    this.#out.send(installed.server, { kind: 'flushed', epoch: installed, seq: this.#localFlush.flushedSeq });
  }
}

/** @returns null where another server sent what is no table */
function sessionsDecoded(encoded: Uint8Array): SessionTable | null {
  try {
    return SessionTable.decode(encoded);
  } catch (error) {
    if (error instanceof MalformedError) return null;
    throw error;
  }
}
