import { assert } from '../base/assert.ts';
import type { FileId } from '../base/ids.ts';
import { Prng } from '../base/prng.ts';
import type { ReplicaConfig } from './actions.ts';
import { firstEpoch } from './create-with-contents.ts';
import type { Epoch } from './epoch.ts';
import { epochEqual } from './epoch.ts';
import type { Guard } from './guard.ts';
import type { OwnLease } from './own-lease.ts';
import type { ReplicaState } from './replica-state.ts';
import type { View } from './view.ts';
import { viewVoters } from './view.ts';

/** A refused candidate waits up to half a heartbeat, doubled up to this many times. */
const BACKOFF_DOUBLINGS_MAX = 4;

/** After this many failed fetches of the base in one lease, the candidate leaves the lease to others. */
const FAILED_FETCHES_MAX = 4;

/** Whether this server may become candidate, when, and with which epoch. */
export class Candidacy {
  /** The other replicas' view, in which this server is no member; null if none is known. */
  outside: View | null = null;
  readonly #config: ReplicaConfig;
  readonly #state: ReplicaState;
  readonly #guard: Guard;
  readonly #lease: OwnLease;
  readonly #prng: Prng;
  /** An orderly stop was requested: no new reset with this lease. */
  #isStopped = false;
  /** The first epoch, while this process, which created the subject, has not begun it. */
  #firstEpoch: Epoch | null = null;
  /** Largest counter reported in a refusal: the next epoch is larger. */
  #refusedCounter = 0;
  #refusals = 0;
  /** Failed fetches of the base since the lease was acquired or a reset succeeded. */
  #failedFetches = 0;
  #retryAtMs = 0;

  constructor(config: ReplicaConfig, file: FileId, state: ReplicaState, guard: Guard, lease: OwnLease) {
    this.#config = config;
    this.#state = state;
    this.#guard = guard;
    this.#lease = lease;
    this.#prng = new Prng(config.incarnation + file);
  }

  get votes(): boolean {
    return viewVoters(this.#state.view).includes(this.#config.self);
  }

  get isStopped(): boolean {
    return this.#isStopped;
  }

  /** Whether this server created the subject and has promised no other epoch since. */
  get isCreator(): boolean {
    return this.#firstEpoch !== null && epochEqual(this.#state.promised, this.#firstEpoch);
  }

  mayBecomeCandidate(nowMs: number): boolean {
    return this.#isWilling && this.#lease.isValid(nowMs) && nowMs >= this.#beginAtMs();
  }

  /** When a reset may begin without another event; Infinity without a lease. */
  wakeAtMs(): number {
    return this.#lease.isHeld && this.#isWilling ? this.#beginAtMs() : Infinity;
  }

  get #isWilling(): boolean {
    return !this.#isStopped && this.outside === null && this.votes;
  }

  /** After a pause, and after a guard that binds this replica to another server. At once for a subject created here. */
  #beginAtMs(): number {
    if (this.isCreator) return -Infinity;
    const { self, incarnation } = this.#config;
    return Math.max(this.#retryAtMs, this.#guard.barsUntilMs({ counter: 0, server: self, incarnation }));
  }

  /** @returns an epoch larger than all that were promised here or reported */
  nextEpoch(): Epoch {
    const { self, incarnation, candidatesFrom } = this.#config;
    const reported = Math.max(this.#state.promised.counter, this.#refusedCounter);
    const counter = Math.max(candidatesFrom, 1 + reported);
    assert(Number.isSafeInteger(counter), 'Epochs do not run out');
    return { counter, server: self, incarnation };
  }

  /** This process created the subject. @returns the epoch in which it is the first primary */
  created(): Epoch {
    const { self, incarnation } = this.#config;
    this.#firstEpoch = firstEpoch(self, incarnation);
    return this.#firstEpoch;
  }

  takeFirstEpoch(): Epoch {
    const epoch = this.#firstEpoch;
    assert(epoch !== null, 'This process created the subject');
    this.#firstEpoch = null;
    return epoch;
  }

  /** Another replica promised, or has installed, an epoch with this counter. */
  refused(counter: number): void {
    this.#refusedCounter = Math.max(this.#refusedCounter, counter);
  }

  /** A reset was refused: the next one starts after a random pause, which doubles. */
  backOff(nowMs: number): void {
    const longestMs = (this.#config.heartbeatMs / 2) * 2 ** Math.min(this.#refusals, BACKOFF_DOUBLINGS_MAX);
    this.#refusals++;
    this.#retryAtMs = nowMs + longestMs * (0.5 + 0.5 * this.#prng.next());
  }

  /** Counts a failed fetch of the base. @returns whether others should get the lease */
  fetchFailed(): boolean {
    this.#failedFetches++;
    if (this.#failedFetches < FAILED_FETCHES_MAX) return false;
    this.#failedFetches = 0;
    return true;
  }

  succeeded(): void {
    this.#refusals = 0;
    this.#failedFetches = 0;
  }

  /** Begins no more epochs until the lease ends; no effect without a lease. */
  stop(): void {
    this.#isStopped = this.#lease.isHeld;
  }

  leaseEnded(): void {
    this.#isStopped = false;
    this.#retryAtMs = 0;
    this.succeeded();
  }
}
