import { Candidate } from './candidate.ts';
import type { Position } from './epoch.ts';
import { epochFormat } from './epoch.ts';
import { Beginning, Resumed } from './ordering-roles.ts';
import { Reset } from './reset.ts';
import { mayBeResumed } from './resumption.ts';
import { type ReplicaParts, ReplicaRole, type Transitions } from './role.ts';
import { WriteOrder } from './write-order.ts';

/** A reset waits this many heartbeats for intact replicas; then promises of replicas that lost power suffice. */
const PATIENT_HEARTBEATS = 2;

/** An epoch that this process ended with nothing under way. `isAtAllReplicas`: all replicas had all of it. */
export interface EndedEpoch {
  readonly position: Position;
  readonly isAtAllReplicas: boolean;
}

export class BackupRole extends ReplicaRole {
  readonly kind = 'backup';
  /** Outdated once the replica has a newer position or epoch, which `resumable` checks. */
  #ended: EndedEpoch | null;

  constructor(parts: ReplicaParts, roles: Transitions, ended: EndedEpoch | null) {
    super(parts, roles);
    this.#ended = ended;
  }

  override get resumable(): Position | null {
    const { lease, config, candidacy, state } = this.parts;
    if (this.#ended === null || lease.isHeld) return null;
    // A primary that applies last keeps a transaction open for what it orders, and holds the lease for that.
    if (config.appliesAtPrimary === 'last') return null;
    const { position } = this.#ended;
    return candidacy.votes && mayBeResumed(position, state) ? position : null;
  }

  /** Remembers that this process may resume the epoch at `position`: all up to there is committed (event `ended`). */
  override ended(position: Position): void {
    const { state, backup } = this.parts;
    if (!mayBeResumed(position, state)) return;
    this.#ended = { position, isAtAllReplicas: false };
    backup.wasPrimaryUntil(position.seq);
  }

  /** Called for each operation of a client: orders again, without a lease, if `resumable` allows it (decision 0074). */
  override resume(nowMs: number): void {
    const base = this.resumable;
    if (base === null) return;
    const { out, schedule } = this.parts;
    out.trace('resumed', epochFormat(base.epoch));
    // A replica that may lack the base gets `install` with the first operation; one that has it only confirms.
    const start = this.#ended?.isAtAllReplicas ? 'asked' : 'unasked';
    const order = new WriteOrder(this.parts, { base, installed: new Map(), start, hasLease: false }, nowMs);
    schedule.start(nowMs);
    this.roles.become(new Resumed(this.parts, this.roles, order));
  }

  /** Releases the lease if this replica is no voter of its view, which other servers may not know. */
  override leaseExtended(): void {
    const { candidacy } = this.parts;
    if (!candidacy.isStopped && !candidacy.votes) this.roles.stop();
  }

  override prepare(nowMs: number): void {
    const { candidacy } = this.parts;
    if (!candidacy.mayBecomeCandidate(nowMs)) return;
    if (candidacy.isCreator) this.#beginFirst(nowMs);
    else this.#beginReset(nowMs);
  }

  /** The creating server has the lease: it orders in the first epoch, at the latest once the disk has `begin`. */
  #beginFirst(nowMs: number): void {
    const { candidacy, schedule, out } = this.parts;
    const epoch = candidacy.takeFirstEpoch();
    this.roles.noteOrigin({ isFirst: true, inheritedFrom: null });
    schedule.startAligned(nowMs);
    out.trace('made', epochFormat(epoch));
    const beginning = new Beginning(this.parts, this.roles, epoch);
    this.roles.become(beginning);
    beginning.begunHere(nowMs);
  }

  /**
   * Replica reset, step 1: an epoch larger than all promised or reported ones. PREPARE may leave before the local
   * promise is stored: the local vote counts only afterwards, and no other process, nor a later incarnation of this
   * one, can choose the same epoch.
   */
  #beginReset(nowMs: number): void {
    const { config, state, backup, candidacy, schedule, out } = this.parts;
    const epoch = candidacy.nextEpoch();
    state.promise(epoch);
    backup.onNewPromise();
    const patientUntilMs = nowMs + PATIENT_HEARTBEATS * config.heartbeatMs;
    const reset = new Reset(epoch, state.view, config.self, config.mayStartEmptyIfLost, patientUntilMs);
    out.trace('reset-started', epochFormat(epoch));
    const candidate = new Candidate(this.parts, this.roles, reset);
    this.roles.become(candidate);
    schedule.start(nowMs);
    candidate.heartbeatDue();
  }

  override wakeAtMs(nowMs: number): number {
    const askMs = this.parts.readLease.nextRequestMs();
    // No wake-up for a request that may not be sent yet.
    return Math.min(askMs > nowMs ? askMs : Infinity, this.parts.candidacy.wakeAtMs());
  }
}
