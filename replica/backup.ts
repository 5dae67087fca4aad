import { assert } from '../base/assert.ts';
import type { Incarnation, ServerId } from '../base/ids.ts';
import { MalformedError } from '../wire/bytes.ts';
import type { ReplicaConfig } from './actions.ts';
import type { Epoch, Position } from './epoch.ts';
import { epochEqual, epochFormat, POSITION_ZERO, positionCompare, positionFormat } from './epoch.ts';
import type { Guard } from './guard.ts';
import type { LocalFlush } from './local-flush.ts';
import { INCARNATION_UNKNOWN, type PrimaryMessage } from './messages.ts';
import type { Outbox } from './outbox.ts';
import type { ReadLease } from './read-lease.ts';
import { type ReplicaState, sessionsAfter } from './replica-state.ts';
import { SessionTable } from './sessions.ts';
import { type View, viewsConflict } from './view.ts';

type Write = Extract<PrimaryMessage, { readonly kind: 'write' }>;

/** Operations of a first epoch kept while its beginning is stored; later ones are requested again. */
const EARLY_MAX = 64;

/** The backup's half of reset and write. Candidates run it too; answers go to *other* servers only. */
export class Backup {
  readonly #self: ServerId;
  readonly #out: Outbox;
  readonly #standing: ReplicaState;
  readonly #localFlush: LocalFlush;
  readonly #guard: Guard;
  readonly #incarnation: Incarnation;
  readonly #readLease: ReadLease;
  #owesPromise = false;
  /** Operations that arrived right after `begin`. */
  #early: Write[] = [];
  /** First operation of the last `resend` request, so that one lost message is requested once. */
  #askedSeq = 0;
  #heardCommittedSeq = 0;
  /** When the primary last reported no commit that is missing here. */
  currentAtMs = -Infinity;
  #committedSeq = 0;
  /** The state being stored is another replica's, of another epoch than the known commit point. */
  #replaces = false;

  constructor(
    { self, incarnation }: Pick<ReplicaConfig, 'self' | 'incarnation'>,
    out: Outbox,
    standing: ReplicaState,
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

  /** @param message of the promised epoch: smaller ones were refused, a larger one raised the promise */
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

  /** A larger epoch was promised: drops what waited for the older one. */
  onNewPromise(): void {
    this.#owesPromise = false;
    this.#readLease.drop();
    this.#early = [];
  }

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
    // A message from before the primary knew of the loss says nothing about what this replica had by then.
    const meant = trusted || to === this.#incarnation;
    if (this.#has(epoch, base) && (trusted || !meant)) {
      this.#out.send(epoch.server, { kind: 'installed', epoch, seq: standing.seq });
      return;
    }
    if (!meant) {
      // The primary does not know this incarnation; a promise tells it.
      this.#owesPromise = true;
      return;
    }
    // A primary that applies last is behind what this replica acknowledged, but not for long.
    if (epochEqual(epoch, standing.installed) && base.seq < standing.seq) return;
    this.startInstall(epoch, base, epoch.server, urgent);
  }

  /** Starts to take over `base` for the promised epoch, from `from` unless it is already here. */
  startInstall(epoch: Epoch, base: Position, from: ServerId, urgent: boolean): void {
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

  /** Only with the disk at rest is the position final, comparable with the base, and the contents fixed for a fetch. */
  #beginInstall(): void {
    const standing = this.#standing;
    const { install } = standing;
    if (install === null || install.stage !== 'waiting' || !standing.settled) return;
    const { epoch, base } = install;
    const { seq, view, sessions } = standing;
    if (this.#has(epoch, base) && standing.trust === 'intact') {
      // Operations under way filled the gap.
      standing.install = null;
      this.#out.send(epoch.server, { kind: 'installed', epoch, seq });
    } else if (this.#has(epoch, base) && standing.trust !== 'damaged') {
      // After a power loss it has all that the primary had when it learned of the loss.
      this.#out.trace('trusted-again', `${epochFormat(epoch)} at ${seq}`);
      standing.storeInstall(install, { seq, view, sessions }, false);
    } else if (positionCompare(standing.position, base) === 0 && !this.#isRepairedBy(install.from)) {
      // Stamping: the contents stay, but now belong to the new epoch. Otherwise the tail of an older epoch could
      // later win over a newer base that looks shorter.
      this.#out.trace('stamped', `${epochFormat(epoch)} over ${positionFormat(base)}`);
      standing.storeInstall(install, { seq: base.seq, view, sessions }, false);
    } else {
      install.stage = 'fetching';
      this.#out.push({ kind: 'fetch-state', epoch, from: install.from, urgent: install.urgent });
    }
  }

  /** Another replica's state replaces unreadable contents. Without one, reads repair them. */
  #isRepairedBy(from: ServerId): boolean {
    return this.#standing.trust === 'damaged' && from !== this.#self;
  }

  /**
   * The driver has the state of `install.from` beside the local contents. From a primary it may be any state of its
   * epoch, base or later. From the holder of a base it must be the promised one: if it moved, the holder followed
   * another candidate, and this epoch is over.
   * @returns false if the fetch was in vain
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

  /** The epoch is installed: reports it to the primary, unless the epoch is over. */
  installed(epoch: Epoch): void {
    this.#askedSeq = 0;
    this.#heardCommittedSeq = 0;
    // After a power loss of a majority, a base may lack what this replica knew to be committed, and the fetched state
    // may have other operations at the same numbers. Contents that were only stamped are the whole base: the commit
    // point stays true.
    if (this.#replaces) this.#committedSeq = 0;
    this.#replaces = false;
    this.#committedSeq = Math.min(this.#committedSeq, this.#standing.seq);
    if (epoch.server === this.#self || !epochEqual(epoch, this.#standing.promised)) return;
    for (const write of this.#early.splice(0)) this.#onWrite(write);
    // If operations are under way, their acknowledgement says the same.
    if (!this.#standing.atRest) return;
    this.#out.send(epoch.server, { kind: 'installed', epoch, seq: this.#standing.seq });
  }

  wasPrimaryUntil(committedSeq: number): void {
    this.#heardCommittedSeq = Math.max(this.#heardCommittedSeq, committedSeq);
    this.#committedSeq = Math.max(this.#committedSeq, committedSeq);
    assert(this.#committedSeq <= this.#standing.seq, 'What is committed is here');
  }

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
    // A store in doubt takes no operation before it is complete: its state is not certain.
    if (standing.trust !== 'intact') return;
    // Under way: acknowledged when applied. Or contents are being replaced: the primary sends it again.
    if (seq <= standing.issuedSeq || standing.install !== null) return;
    if (seq > standing.issuedSeq + 1) {
      this.#ask(epoch, false);
      return;
    }
    standing.apply(operation, sessionsAfter(standing.sessions, seq, operation), true);
  }

  /** Acknowledges an applied operation, unless a larger epoch was promised meanwhile. */
  applied(): void {
    const { installed, promised, seq } = this.#standing;
    this.#moveCommitted();
    if (installed.server === this.#self || !epochEqual(installed, promised)) return;
    this.#out.send(installed.server, { kind: 'ack', epoch: installed, seq });
  }

  /** The guard binds before the promise is on disk: after a crash, the start has a guard of its own. */
  #onHeartbeat(message: Extract<PrimaryMessage, { kind: 'heartbeat' }>, nowMs: number): void {
    const standing = this.#standing;
    const { epoch, beat } = message;
    this.#guard.hold(epoch, nowMs, message.guardMs);
    if (epochEqual(epoch, standing.installed)) {
      this.#hearCommitted(message.committedSeq);
      // Without a guard the sender may order without a lease, and another server may have been primary since.
      if (message.guardMs > 0 && standing.seq >= message.committedSeq) this.currentAtMs = nowMs;
      const asks = standing.install === null && standing.trust === 'intact';
      if (message.sentSeq > standing.issuedSeq && asks) this.#ask(epoch, true);
    }
    const { position, trust } = standing;
    this.#out.send(epoch.server, { kind: 'heartbeat-ack', epoch, position, beat, trust });
  }

  /** Requests a read lease, or its renewal, if reads arrive here and it is time. */
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
   * Whether a read may be served here: no larger epoch was promised, the lease runs at this moment, and all that the
   * answer shows is known to be committed. Never serves the version before an uncommitted operation, which may be
   * committed elsewhere.
   */
  readGate(dependsOnSeq: number, nowMs: number): 'serve' | 'wait' | 'not-primary' {
    const { installed, promised, seq } = this.#standing;
    if (!epochEqual(installed, promised) || !this.#readLease.covers(installed, seq, nowMs))
      return 'not-primary';
    return dependsOnSeq <= this.#committedSeq ? 'serve' : 'wait';
  }

  /** Requests missing operations; `again` if the first request may be lost. */
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

  #onFlush(epoch: Epoch, seq: number): void {
    if (this.#localFlush.flushedSeq >= seq) {
      this.#out.send(epoch.server, { kind: 'flushed', epoch, seq: this.#localFlush.flushedSeq });
    } else {
      this.#localFlush.want(seq);
    }
  }

  flushed(): void {
    const { installed, promised } = this.#standing;
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
