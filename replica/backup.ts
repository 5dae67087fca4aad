import { assert } from '../base/assert.ts';
import type { Incarnation, ServerId } from '../base/ids.ts';
import { MalformedError } from '../wire/bytes.ts';
import type { ReplicaConfig, ReplicaEvent } from './actions.ts';
import type { Epoch, Position } from './epoch.ts';
import {
  epochCompare,
  epochEqual,
  epochFormat,
  POSITION_ZERO,
  positionCompare,
  positionFormat,
} from './epoch.ts';
import type { Guard } from './guard.ts';
import type { LocalFlush } from './local-flush.ts';
import { INCARNATION_UNKNOWN, type PrimaryMessage } from './messages.ts';
import type { Outbox } from './outbox.ts';
import type { ReadLease } from './read-lease.ts';
import { type Install, type ReplicaState, sessionsAfter } from './replica-state.ts';
import { SessionTable } from './sessions.ts';
import { viewsConflict } from './view.ts';

type Write = Extract<PrimaryMessage, { readonly kind: 'write' }>;
type FetchedEvent = Extract<ReplicaEvent, { readonly kind: 'state-fetched' }>;

/** Most operations of a first epoch kept while `begin` is stored; later ones are requested again. */
const EARLY_WRITES_MAX = 64;

/** The backup's half of reset and write. Candidates run it too; answers go to *other* servers only. */
export class Backup {
  readonly #self: ServerId;
  readonly #out: Outbox;
  readonly #state: ReplicaState;
  readonly #localFlush: LocalFlush;
  readonly #guard: Guard;
  readonly #incarnation: Incarnation;
  readonly #readLease: ReadLease;
  #mustAnswerPrepare = false;
  /** Operations that arrived right after `begin`. */
  #earlyWrites: Write[] = [];
  /** First operation of the last `resend` request, so that one lost message is requested once. */
  #requestedSeq = 0;
  #reportedCommittedSeq = 0;
  /** When the primary last reported no commit that is missing here. */
  currentAtMs = -Infinity;
  #committedSeq = 0;
  /** The state being stored is another replica's, of another epoch than the known commit point. */
  #replacesEpoch = false;

  constructor(
    { self, incarnation }: Pick<ReplicaConfig, 'self' | 'incarnation'>,
    out: Outbox,
    state: ReplicaState,
    localFlush: LocalFlush,
    guard: Guard,
    readLease: ReadLease,
  ) {
    this.#self = self;
    this.#incarnation = incarnation;
    this.#guard = guard;
    this.#readLease = readLease;
    this.#out = out;
    this.#state = state;
    this.#localFlush = localFlush;
  }

  get committedSeq(): number {
    return this.#committedSeq;
  }

  /** Handles a message of the promised epoch: smaller ones were refused, and a larger one has raised the promise. */
  message(message: PrimaryMessage, nowMs: number): void {
    const { epoch } = message;
    assert(
      epochEqual(epoch, this.#state.promised),
      'Messages of other epochs than the promised one are refused',
    );
    assert(epoch.server !== this.#self, 'Messages of an own epoch come from no other server');
    switch (message.kind) {
      case 'prepare':
        this.#mustAnswerPrepare = true;
        return;
      case 'install':
        this.#onInstall(epoch, message.base, message.to, message.urgent);
        return;
      case 'begin':
        // Repeated or late `begin`: handled like an install that needs only the stamp.
        this.#onInstall(epoch, POSITION_ZERO, INCARNATION_UNKNOWN, true);
        return;
      case 'write':
        this.#onWrite(message);
        return;
      case 'heartbeat':
        this.#onHeartbeat(message, nowMs);
        return;
      case 'flush':
        if (epochEqual(epoch, this.#state.installed)) this.#onFlush(epoch, message.seq);
        return;
      case 'commit':
        if (epochEqual(epoch, this.#state.installed)) this.#noteCommitted(message.committedSeq);
        return;
      case 'read-grant':
        this.#onReadGrant(message);
        return;
    }
  }

  /** A larger epoch was promised: drops what waited for the older one. */
  onNewPromise(): void {
    this.#mustAnswerPrepare = false;
    this.#readLease.drop();
    this.#earlyWrites = [];
  }

  /** Sends the promise once it is stored, starts a waiting install once the disk is at rest, and local flushes. */
  advance(): void {
    const { promised } = this.#state;
    if (this.#mustAnswerPrepare && this.#state.isFinal) {
      this.#mustAnswerPrepare = false;
      this.#out.trace('promised', `${epochFormat(promised)} from ${positionFormat(this.#state.position)}`);
      this.#out.send(promised.server, {
        kind: 'promise',
        epoch: promised,
        position: this.#state.position,
        view: this.#state.view,
        trust: this.#state.trust,
      });
    }
    this.#beginInstall();
    this.#localFlush.advance();
  }

  /** The primary requests an install: confirms it if it is here, reports a restart by a promise, or starts it. */
  #onInstall(epoch: Epoch, base: Position, to: Incarnation, urgent: boolean): void {
    const state = this.#state;
    if (state.install !== null) return;
    const trusted = state.trust === 'intact';
    // The primary sent a message for another incarnation before it knew that this store may have lost operations.
    const isForThisProcess = trusted || to === this.#incarnation;
    if (this.#has(epoch, base) && (trusted || !isForThisProcess)) {
      this.#out.send(epoch.server, { kind: 'installed', epoch, seq: state.seq });
      return;
    }
    if (!isForThisProcess) {
      // The primary does not know this incarnation yet; a promise reports it.
      this.#mustAnswerPrepare = true;
      return;
    }
    // A primary that applies last is behind what this replica acknowledged, but not for long.
    if (epochEqual(epoch, state.installed) && base.seq < state.seq) return;
    this.startInstall(epoch, base, epoch.server, urgent);
  }

  /** Starts to take over `base` for the promised epoch, from `from` unless it is already here. */
  startInstall(epoch: Epoch, base: Position, from: ServerId, urgent: boolean): void {
    const state = this.#state;
    assert(epochEqual(epoch, state.promised), 'Only the promised epoch is installed');
    const { view } = state;
    state.install = {
      epoch,
      base,
      from,
      urgent,
      stage: 'waiting',
      part: null,
      seq: 0,
      view,
      sessions: SessionTable.EMPTY,
    };
  }

  #has(epoch: Epoch, base: Position): boolean {
    return epochEqual(this.#state.installed, epoch) && this.#state.seq >= base.seq;
  }

  /** Starts the waiting install. Not before the disk is at rest: then position and contents do not change. */
  #beginInstall(): void {
    const state = this.#state;
    const { install } = state;
    if (install === null || install.stage !== 'waiting' || !state.isFinal) return;
    const { epoch, base } = install;
    const { seq, view, sessions } = state;
    if (this.#has(epoch, base) && state.trust === 'intact') {
      // Operations under way filled the gap.
      state.install = null;
      this.#out.send(epoch.server, { kind: 'installed', epoch, seq });
    } else if (this.#has(epoch, base) && state.trust !== 'damaged') {
      // After a power loss it has all that the primary had when it learned of the loss.
      this.#out.trace('trusted-again', `${epochFormat(epoch)} at ${seq}`);
      state.storeInstall(install, { seq, view, sessions }, false);
    } else if (positionCompare(state.position, base) === 0 && !this.#isRepairedBy(install.from)) {
      // Stamping: the contents stay, but now belong to the new epoch. Otherwise the tail of an older epoch could
      // later win over a newer base that looks shorter.
      this.#out.trace('stamped', `${epochFormat(epoch)} over ${positionFormat(base)}`);
      state.storeInstall(install, { seq: base.seq, view, sessions }, false);
    } else {
      install.stage = 'fetching';
      this.#out.push({ kind: 'fetch-state', epoch, from: install.from, urgent: install.urgent });
    }
  }

  /** Another replica's state replaces unreadable contents. Without one, reads repair them. */
  #isRepairedBy(from: ServerId): boolean {
    return this.#state.trust === 'damaged' && from !== this.#self;
  }

  /**
   * The driver has the state of `install.from` beside the local contents. From a primary it may be any state of its
   * epoch, base or later. From the holder of a base it must be the promised one: if it moved, the holder followed
   * another candidate, and this epoch is over. A part is an earlier state of the same history.
   * @returns false if the state cannot be used
   */
  stateFetched(fetched: FetchedEvent): boolean {
    const { epoch, position, view, isPart = false } = fetched;
    const state = this.#state;
    const { install } = state;
    if (install === null || install.stage !== 'fetching' || !epochEqual(install.epoch, epoch)) return true;
    const sessions = sessionsDecoded(fetched.sessions);
    const isExpected = isPart ? this.#isOnTheWay(position, install) : this.#isWanted(position, install);
    const fits = isExpected && !viewsConflict(view, state.view);
    if (sessions === null || !fits) {
      state.install = null;
      this.#out.trace('fetch-failed', `${positionFormat(position)} for ${positionFormat(install.base)}`);
      return false;
    }
    if (isPart) {
      this.#out.trace('caught-up-in-part', `${positionFormat(position)} from ${install.from}`);
      state.storePart(install, position, { view, sessions });
      return true;
    }
    const within = epochEqual(state.installed, epoch);
    this.#replacesEpoch = !within;
    this.#out.trace(within ? 'caught-up' : 'replaced', `${epochFormat(epoch)} from ${install.from}`);
    state.storeInstall(install, { seq: position.seq, view, sessions }, true);
    return true;
  }

  #isWanted(position: Position, { epoch, base }: Install): boolean {
    if (epoch.server === this.#self) return positionCompare(position, base) === 0;
    return epochEqual(position.epoch, epoch) && position.seq >= base.seq;
  }

  /** Whether a part adds operations, and does not go beyond the base that this candidate has chosen. */
  #isOnTheWay(position: Position, { epoch, base }: Install): boolean {
    const { seq, installed } = this.#state;
    if (position.seq <= seq || epochCompare(position.epoch, installed) < 0) return false;
    const isOwn = epoch.server === this.#self;
    return isOwn ? positionCompare(position, base) < 0 : epochCompare(position.epoch, epoch) <= 0;
  }

  /** A part is here: fetches what follows it, unless a larger epoch was promised. */
  partInstalled(position: Position): void {
    const state = this.#state;
    state.partStored(position);
    // A report of an earlier epoch says nothing of this one. A heartbeat repeats those of this one.
    this.#reportedCommittedSeq = 0;
    const { install } = state;
    if (install === null) return;
    const { epoch, from, urgent } = install;
    this.#out.push({ kind: 'fetch-state', epoch, from, urgent });
  }

  /** A fetch failed: drops the install that waits for it. @returns false if there was one */
  stateFailed(epoch: Epoch, reason: string): boolean {
    const { install } = this.#state;
    if (install === null || install.stage !== 'fetching' || !epochEqual(install.epoch, epoch)) return true;
    this.#state.install = null;
    this.#out.trace('fetch-failed', reason);
    return false;
  }

  /** The epoch is installed: reports it to the primary, unless the epoch is over. */
  installed(epoch: Epoch): void {
    this.#requestedSeq = 0;
    this.#reportedCommittedSeq = 0;
    // After a power loss of a majority, a base may lack what this replica knew to be committed, and the fetched state
    // may have other operations at the same numbers. Contents that were only stamped are the whole base: the commit
    // point stays true.
    if (this.#replacesEpoch) this.#committedSeq = 0;
    this.#replacesEpoch = false;
    this.#committedSeq = Math.min(this.#committedSeq, this.#state.seq);
    if (epoch.server === this.#self || !epochEqual(epoch, this.#state.promised)) return;
    for (const write of this.#earlyWrites.splice(0)) this.#onWrite(write);
    // If operations are under way, their acknowledgement says the same.
    if (!this.#state.isAtRest) return;
    this.#out.send(epoch.server, { kind: 'installed', epoch, seq: this.#state.seq });
  }

  /** This replica stops being primary, and knows that all operations up to `committedSeq` are committed. */
  wasPrimaryUntil(committedSeq: number): void {
    this.#reportedCommittedSeq = Math.max(this.#reportedCommittedSeq, committedSeq);
    this.#committedSeq = Math.max(this.#committedSeq, committedSeq);
    assert(
      this.#committedSeq <= this.#state.seq,
      'A replica has all operations that it knows to be committed',
    );
  }

  #onWrite(message: Write): void {
    const state = this.#state;
    const { epoch, seq, operation } = message;
    if (!epochEqual(epoch, state.installed)) {
      if (state.isBeginning) {
        if (this.#earlyWrites.length < EARLY_WRITES_MAX) this.#earlyWrites.push(message);
        return;
      }
      this.#out.send(epoch.server, { kind: 'need-state', epoch, position: state.position });
      return;
    }
    this.#noteCommitted(message.committedSeq);
    if (seq <= state.seq) {
      this.#out.send(epoch.server, { kind: 'ack', epoch, seq: state.seq });
      return;
    }
    // A store that may lack operations takes no new one before an install has made it complete.
    if (state.trust !== 'intact') return;
    // Under way: acknowledged when applied. Or contents are being replaced: the primary sends it again.
    if (seq <= state.issuedSeq || state.install !== null) return;
    if (seq > state.issuedSeq + 1) {
      this.#requestResend(epoch, false);
      return;
    }
    state.apply(operation, sessionsAfter(state.sessions, seq, operation), true);
  }

  /** Acknowledges an applied operation, unless a larger epoch was promised meanwhile. */
  applied(): void {
    const { installed, promised, seq } = this.#state;
    this.#moveCommitted();
    if (installed.server === this.#self || !epochEqual(installed, promised)) return;
    this.#out.send(installed.server, { kind: 'ack', epoch: installed, seq });
  }

  /** Binds this replica to the primary for the guard, requests what is missing, and reports the position. */
  #onHeartbeat(message: Extract<PrimaryMessage, { kind: 'heartbeat' }>, nowMs: number): void {
    const state = this.#state;
    const { epoch, beat } = message;
    this.#guard.bind(epoch, nowMs, message.guardMs);
    if (epochEqual(epoch, state.installed)) {
      this.#noteCommitted(message.committedSeq);
      // Without a guard the sender may order without a lease, and another server may have been primary since.
      if (message.guardMs > 0 && state.seq >= message.committedSeq) this.currentAtMs = nowMs;
      const mayRequest = state.install === null && state.trust === 'intact';
      if (message.sentSeq > state.issuedSeq && mayRequest) this.#requestResend(epoch, true);
    }
    const { position, trust } = state;
    this.#out.send(epoch.server, { kind: 'heartbeat-ack', epoch, position, beat, trust });
  }

  /** Requests a read lease, or its renewal, if reads arrive here and it is time. */
  requestReadLease(nowMs: number): void {
    const { installed, promised } = this.#state;
    if (nowMs < this.#readLease.nextRequestMs()) return;
    if (installed.counter === 0 || installed.server === this.#self || !epochEqual(installed, promised))
      return;
    const nonce = this.#readLease.request(nowMs);
    this.#out.send(installed.server, { kind: 'read-request', epoch: installed, nonce });
  }

  /** The primary grants a read lease. `advanced` has the driver try waiting reads again. */
  #onReadGrant({
    epoch,
    nonce,
    durationMs,
    startSeq,
  }: Extract<PrimaryMessage, { kind: 'read-grant' }>): void {
    if (!epochEqual(epoch, this.#state.installed)) return;
    if (!this.#readLease.granted(epoch, nonce, durationMs, startSeq)) return;
    this.#out.trace('read-lease', `from operation ${startSeq}`);
    this.#out.push({ kind: 'advanced', committedSeq: this.#committedSeq });
  }

  /**
   * Whether a read may be served here: no larger epoch was promised, the lease runs now, and all that the answer shows
   * is known to be committed. Never serves the version before an uncommitted operation: others may commit it.
   */
  readGate(dependsOnSeq: number, nowMs: number): 'serve' | 'wait' | 'not-primary' {
    const { installed, promised, seq } = this.#state;
    if (!epochEqual(installed, promised) || !this.#readLease.covers(installed, seq, nowMs))
      return 'not-primary';
    return dependsOnSeq <= this.#committedSeq ? 'serve' : 'wait';
  }

  /** Requests missing operations; `again` if the first request may be lost. */
  #requestResend(epoch: Epoch, again: boolean): void {
    const fromSeq = this.#state.issuedSeq + 1;
    if (this.#requestedSeq === fromSeq && !again) return;
    this.#requestedSeq = fromSeq;
    this.#out.trace('gap', `from operation ${fromSeq}`);
    this.#out.send(epoch.server, { kind: 'resend', epoch, fromSeq });
  }

  #noteCommitted(committedSeq: number): void {
    this.#reportedCommittedSeq = Math.max(this.#reportedCommittedSeq, committedSeq);
    this.#moveCommitted();
  }

  #moveCommitted(): void {
    const committedSeq = Math.min(this.#reportedCommittedSeq, this.#state.seq);
    if (committedSeq <= this.#committedSeq) return;
    this.#committedSeq = committedSeq;
    this.#out.push({ kind: 'advanced', committedSeq });
  }

  /** The primary wants operations up to `seq` to survive power loss: answers, now or after a flush of the disk. */
  #onFlush(epoch: Epoch, seq: number): void {
    if (this.#localFlush.flushedSeq >= seq) {
      this.#out.send(epoch.server, { kind: 'flushed', epoch, seq: this.#localFlush.flushedSeq });
    } else {
      this.#localFlush.want(seq);
    }
  }

  flushed(): void {
    const { installed, promised } = this.#state;
    if (installed.server === this.#self || !epochEqual(installed, promised)) return;
    this.#out.send(installed.server, { kind: 'flushed', epoch: installed, seq: this.#localFlush.flushedSeq });
  }
}

/** @returns null if the bytes, from another server, are no session table */
function sessionsDecoded(encoded: Uint8Array): SessionTable | null {
  try {
    return SessionTable.decode(encoded);
  } catch (error) {
    if (error instanceof MalformedError) return null;
    throw error;
  }
}
