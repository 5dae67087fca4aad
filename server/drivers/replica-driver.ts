import type { Logger } from 'pino';
import { AssertionFailure, assert, unreachable } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import {
  CATALOG_CELL,
  type FileId,
  type Incarnation,
  isCatalogCell,
  isVolumeCatalogCell,
  type ServerId,
} from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { PeerStatus, ReplicaAction, ReplicaEvent, Role } from '../../replica/actions.ts';
import type { Epoch, Position } from '../../replica/epoch.ts';
import { epochCompare } from '../../replica/epoch.ts';
import type { ReplicaMessage } from '../../replica/messages.ts';
import type { Operation } from '../../replica/operation.ts';
import { Replica } from '../../replica/replica.ts';
import type { View } from '../../replica/view.ts';
import { viewVoters } from '../../replica/view.ts';
import type { Clock } from '../process/clock.ts';
import { encodeStateTransferCall, STATE_CALL } from './state-call.ts';
import type { Subject } from './subject.ts';
import type { WakeQueue } from './wake-queue.ts';

/** A state transfer without an answer for this long is aborted and restarted. */
const FETCH_TIMEOUT_MS = 10_000;
/** A full disk is unlikely to have space at the next heartbeat. */
const NO_SPACE_PAUSE_MS = 1_000;

/** Longest wait of a call for a move of replicas; the move itself continues. */
const CHANGE_MS_MAX = 10 * 60_000;

/** Epochs of the catalog begin at 1. Those of a file begin at 2: 1 is reserved for the server that created it. */
const CATALOG_CANDIDATES_FROM = 1;
export const FILE_CANDIDATES_FROM = 2;

/**
 * Calls that are served in any epoch: `objects` names the exact version of an object, whose bytes are the same in every
 * epoch, and `snapshot-end` reads nothing.
 */
const METHODS_OF_ANY_EPOCH: ReadonlySet<string> = new Set(['objects', 'snapshot-end']);

export interface ReplicaSurroundings {
  readonly self: ServerId;
  readonly incarnation: Incarnation;
  readonly world: World;
  readonly clock: Clock;
  readonly wakes: WakeQueue;
  readonly log: Logger;
  isClockSound(): boolean;
  readonly heartbeatMs: number;
  readonly quietHeartbeatMs: number;
  readonly silentMs: number;
  readonly readLeaseMs: number;
  /** @see ReplicaConfig.startGuardUntilMs: for earlier processes, and earlier cores in this one */
  startGuardUntilMs(file: FileId): number;
  readonly retainedBytesMax: number;
  commitStarted(file: FileId): () => void;
  send(to: ServerId, file: FileId, message: ReplicaMessage, deferrable: boolean): void;
  call(to: ServerId, method: string, payload: Uint8Array, timeoutMs: number): Promise<Uint8Array>;
  readonly catchUpPace: { take(bytes: number): Promise<void> };
  /** The file's voters have changed. */
  viewChanged(file: FileId, view: View): void;
  becamePrimary(file: FileId): void;
  /** The replica stopped without a call of `stop`: the members changed, or its base cannot be fetched. */
  stoppedByItself(file: FileId): void;
  marked(
    replica: Pick<ReplicaDriver, 'file' | 'epoch' | 'isFirstPrimary'>,
    mark: string,
    detail: string,
  ): void;
  /** A core broke one of its own invariants: the process must stop. */
  fatal(error: unknown): void;
}

export interface Committed {
  readonly seq: number;
  readonly result: Uint8Array;
}

interface Waiter<Value> {
  resolve(value: Value): void;
  reject(error: Error): void;
}

/** Runs one replica core: turns its actions into frames, disk writes and answers, and their completions into events. */
export class ReplicaDriver {
  readonly file: FileId;
  readonly subject: Subject;
  #core: Replica;
  readonly #around: ReplicaSurroundings;
  readonly #tickets = new Map<number, Waiter<Committed>>();
  readonly #flushes = new Map<number, Waiter<void>>();
  readonly #changes = new Map<number, Waiter<View>>();
  readonly #roleListeners = new Set<() => void>();
  readonly #advanceListeners = new Set<() => void>();
  #boundBeforeMs = -Infinity;
  #nextTicket = 1;
  #wakeAtMs = Infinity;
  #closed = false;
  /** Disk writes and calls in progress: a new core would not know their effects. */
  #actionsInProgress = 0;
  /** Resolves when the changes of view in progress are synced; null if there are none. */
  #syncing: Promise<void> | null = null;
  /** Why the last fetch failed: logged once. */
  #fetchFailure: string | null = null;
  #stepping = false;
  readonly #queued: ReplicaEvent[] = [];
  readonly #stopWaiters: (() => void)[] = [];

  constructor(file: FileId, subject: Subject, around: ReplicaSurroundings) {
    this.file = file;
    this.subject = subject;
    this.#around = around;
    this.#core = this.#newCore(-Infinity);
    this.#scheduleWake();
  }

  /** Time of the last use by a client or a peer, by the process clock, to find idle replicas. */
  usedAtMs = 0;

  status(): ReturnType<Replica['status']> {
    return this.#core.status(this.#around.clock.nowMs());
  }

  get role(): Role {
    return this.#core.role;
  }

  get view(): View {
    return this.#core.view;
  }

  get epoch(): Epoch {
    return this.#core.epoch;
  }

  /** The replicas as this primary sees them; a disconnected one is unreachable at once. */
  peers(isConnected: (server: ServerId) => boolean): PeerStatus[] {
    return this.#core
      .peers(this.#around.clock.nowMs())
      .map((peer) => (isConnected(peer.server) ? peer : { ...peer, state: 'unreachable' }));
  }

  /** @see Replica.boundUntilMs. Includes what bound earlier cores. */
  get boundUntilMs(): number {
    return Math.max(this.#boundBeforeMs, this.#core.boundUntilMs);
  }

  get isUnbound(): boolean {
    return !this.#closed && this.#core.isFree(this.#around.clock.nowMs());
  }

  get isPrimary(): boolean {
    return !this.#closed && this.#around.isClockSound() && this.#core.isPrimary(this.#around.clock.nowMs());
  }

  /** Whether this replica may order operations: as active primary, creating server or resumed primary (`mayOrder`). */
  get orders(): boolean {
    return !this.#closed && this.#around.isClockSound() && this.#core.mayOrder(this.#around.clock.nowMs());
  }

  /** Whether, as far as this epoch knows, the file had no primary before. */
  get isFirstPrimary(): boolean {
    return this.#core.isFirstPrimary;
  }

  /** @see Replica.resumable */
  get resumable(): Position | null {
    return this.#core.resumable;
  }

  /** @see Replica.inheritedFrom */
  get inheritedFrom(): Epoch | null {
    return this.#core.inheritedFrom;
  }

  /** The last operation that was numbered here, applied or not. */
  get orderedSeq(): number {
    return this.#core.orderedSeq;
  }

  /** If this server is the primary, the members, and servers that a change under way may make members. */
  get futureMembers(): readonly ServerId[] {
    return this.#core.futureMembers;
  }

  /** Whether a read that depends on `dependsOnSeq` may be answered here now. A missing right is requested. */
  readGate(dependsOnSeq: number): ReturnType<Replica['readGate']> {
    if (this.#closed) return 'not-primary';
    if (!this.#around.isClockSound()) return 'not-primary';
    const nowMs = this.#around.clock.nowMs();
    this.#core.noteRead(nowMs);
    const gate = this.#core.readGate(dependsOnSeq, nowMs);
    if (gate === 'serve') this.#scheduleWake();
    else this.step({ kind: 'read-wanted' });
    return gate;
  }

  /** For how long, at least, no other server can become primary, so that caches stay valid; 0 if this one is not it. */
  servesForMs(): number {
    return this.isPrimary ? this.#core.servesForMs(this.#around.clock.nowMs()) : 0;
  }

  /**
   * Clients may cache answers of this primary for this long: before that it does not end its epoch in good order.
   * @param durationMs −Infinity once no client has a cache any more
   */
  noteCachedFor(durationMs: number): void {
    this.#core.noteCachedUntil(this.#around.clock.nowMs() + durationMs);
  }

  onRole(listener: () => void): () => void {
    this.#roleListeners.add(listener);
    return () => this.#roleListeners.delete(listener);
  }

  /**
   * Waits until reads that depend on `dependsOnSeq` of `epoch` may be answered here.
   * @throws ServiceError `not-primary` if this server is not, or no longer, primary of `epoch`
   */
  async untilReadable(epoch: Epoch, dependsOnSeq: number): Promise<void> {
    for (;;) {
      const gate = epochCompare(this.epoch, epoch) === 0 ? this.readGate(dependsOnSeq) : 'not-primary';
      if (gate === 'serve') return;
      if (gate === 'not-primary') {
        throw new ServiceError(
          'not-primary',
          `Cannot read file ${this.file}: this server is not its primary`,
        );
      }
      await this.nextChange();
    }
  }

  /**
   * As resumed primary: waits until all operations ordered here are committed.
   * @throws ServiceError `not-primary` if this server stops ordering before it learns that
   */
  async untilAllCommitted(): Promise<void> {
    while (this.resumable === null) {
      if (this.role !== 'resumed')
        throw new ServiceError(
          'not-primary',
          `This server no longer orders changes of file ${this.file}: retry`,
        );
      if (this.status().committedSeq === this.orderedSeq) return;
      await this.nextChange();
    }
  }

  /** Resolves when the commit point or the role changes, or after a read lease's duration: its end is not reported. */
  nextChange(): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.#around.world.after(this.#around.readLeaseMs, () => done());
      const done = (): void => {
        timer.cancel();
        this.#advanceListeners.delete(done);
        this.#roleListeners.delete(done);
        resolve();
      };
      this.#advanceListeners.add(done);
      this.#roleListeners.add(done);
    });
  }

  /**
   * Moves the replicas to these servers; see `change-members` in the core. Resolves with the view when the change is
   * complete.
   * @throws ServiceError `not-primary`, `busy` (another change is in progress) or `unknown`
   */
  changeMembers(members: readonly ServerId[]): Promise<View> {
    if (this.#closed) return Promise.reject(this.#closedError());
    const ticket = this.#nextTicket++;
    return new Promise((resolve, reject) => {
      const timer = this.#around.world.after(CHANGE_MS_MAX, () => {
        const error = new ServiceError(
          'unknown',
          `The replicas of file ${this.file} have not reached their new places yet: retry`,
        );
        this.#takeWaiter(this.#changes, ticket)?.reject(error);
      });
      const settleOnce = (settle: () => void): void => {
        timer.cancel();
        settle();
      };
      this.#changes.set(ticket, {
        resolve: (view) => settleOnce(() => resolve(view)),
        reject: (error) => settleOnce(() => reject(error)),
      });
      this.step({ kind: 'change-members', ticket, members });
    });
  }

  /**
   * Gives an operation its log position, and replicates it; a retry of a known request gets the first result.
   * @param sequenced called before `submit` returns if the operation got a position, so not for a retry
   * @returns the committed position and result
   * @throws ServiceError `not-primary`, `session-expired` (both: certainly not done) or `unknown`
   */
  submit(operation: Operation, sequenced?: () => void): Promise<Committed> {
    if (this.#closed) return Promise.reject(this.#closedError());
    const ticket = this.#nextTicket++;
    const stopTimer = this.#around.commitStarted(this.file);
    return new Promise((resolve, reject) => {
      const committed = (value: Committed): void => {
        stopTimer();
        resolve(value);
      };
      this.#tickets.set(ticket, { resolve: committed, reject });
      const before = this.#core.issuedSeq;
      this.step({ kind: 'submit', ticket, operation });
      if (sequenced !== undefined && this.#core.issuedSeq > before) sequenced();
    });
  }

  /** Resolves when a majority has synced what is committed. @throws ServiceError `unknown` if the epoch ends first */
  flush(): Promise<void> {
    if (this.#closed) return Promise.reject(this.#closedError());
    const ticket = this.#nextTicket++;
    return new Promise((resolve, reject) => {
      this.#flushes.set(ticket, { resolve, reject });
      this.step({ kind: 'flush', ticket });
    });
  }

  /** Stops ordering, and ends the epoch in good order; resolves when no operation is in flight any more. */
  stop(): Promise<void> {
    if (this.#closed) return Promise.resolve();
    return new Promise((resolve) => {
      this.#stopWaiters.push(resolve);
      this.step({ kind: 'stop' });
    });
  }

  /**
   * Replaces the core of a failed replica by a new one with the state on the disk, which may have space now. That is
   * safe like a restart: the old core acknowledged nothing that is not on the disk, and kept its promises there.
   */
  restartFailed(): void {
    assert(
      this.role === 'failed' && this.idle,
      'Only what has failed, and has nothing under way, begins anew',
    );
    this.#boundBeforeMs = this.boundUntilMs;
    this.#core = this.#newCore(this.#boundBeforeMs);
    this.#wakeAtMs = Infinity;
    this.#scheduleWake();
  }

  #newCore(boundUntilMs: number): Replica {
    const around = this.#around;
    const nowMs = around.clock.nowMs();
    return new Replica(
      {
        self: around.self,
        incarnation: around.incarnation,
        appliesAtPrimary: this.subject.appliesAtPrimary,
        heartbeatMs: around.heartbeatMs,
        quietHeartbeatMs: around.quietHeartbeatMs,
        beatsWithLease: isVolumeCatalogCell(this.file),
        silentMs: around.silentMs,
        readLeaseMs: around.readLeaseMs,
        startGuardUntilMs: Math.max(around.startGuardUntilMs(this.file), boundUntilMs),
        candidatesFrom: isCatalogCell(this.file) ? CATALOG_CANDIDATES_FROM : FILE_CANDIDATES_FROM,
        mayStartEmptyIfLost: this.file === CATALOG_CELL,
        retainedBytesMax: around.retainedBytesMax,
      },
      this.file,
      this.subject.record(),
      this.subject.trust(),
      nowMs,
    );
  }

  step(event: ReplicaEvent): void {
    if (this.#closed) return;
    // An action may complete, with an event, while the other actions of its step are still carried out.
    if (this.#stepping) {
      this.#queued.push(event);
      return;
    }
    this.#stepping = true;
    try {
      let next: ReplicaEvent | undefined = event;
      while (next !== undefined) {
        for (const action of this.#core.step(next, this.#around.clock.nowMs())) this.#carryOut(action);
        next = this.#queued.shift();
      }
    } catch (error) {
      this.#around.fatal(error);
      throw error;
    } finally {
      this.#stepping = false;
    }
    this.#scheduleWake();
  }

  /** Unloads the replica; the disk keeps its state. Waiting calls fail with `unknown`: the callers retry. */
  close(): void {
    this.#closed = true;
    this.subject.abandon();
    const error = new ServiceError(
      'unknown',
      `The replica of file ${this.file} was closed during the request: retry`,
    );
    for (const waiters of [this.#tickets, this.#flushes, this.#changes]) {
      for (const waiter of waiters.values()) waiter.reject(error);
      waiters.clear();
    }
    for (const resolve of this.#stopWaiters.splice(0)) resolve();
    this.#notify(this.#roleListeners);
  }

  /** No call waits here, and no write is in progress: another driver may take over the replica. */
  get idle(): boolean {
    const waiting = this.#tickets.size + this.#flushes.size + this.#changes.size;
    return waiting === 0 && this.#actionsInProgress === 0;
  }

  get underWay(): string[] {
    const counts = {
      operations: this.#tickets.size,
      flushes: this.#flushes.size,
      'changes of members': this.#changes.size,
      'calls of the disk or of peers': this.#actionsInProgress,
    };
    return Object.entries(counts).flatMap(([what, count]) => (count > 0 ? [`${count} ${what}`] : []));
  }

  /** A caller that finds it closed asks the host for the replica again. */
  get closed(): boolean {
    return this.#closed;
  }

  /** Answers another replica that fetches the state here, as the base of `epoch`. */
  async serve(epoch: Epoch, method: string, payload: Uint8Array): Promise<Uint8Array> {
    if (METHODS_OF_ANY_EPOCH.has(method)) return this.subject.serve(method, payload);
    this.#assertPromised(epoch);
    const answer = await this.subject.serve(method, payload);
    // If another epoch was promised during the read, what was read may be of a later state.
    this.#assertPromised(epoch);
    return answer;
  }

  /** Refuses to serve the base of `epoch` to a replica unless this one has promised that epoch, and no later one. */
  #assertPromised(epoch: Epoch): void {
    if (epochCompare(this.subject.record().promised, epoch) !== 0) {
      throw new ServiceError(
        'precondition-failed',
        `The replica of file ${this.file} has promised another epoch`,
      );
    }
  }

  /** Performs an action of the core. If the store fails, the replica fails, at whatever action; no invariant breaks. */
  #carryOut(action: ReplicaAction): void {
    try {
      this.#perform(action);
    } catch (error) {
      if (!(error instanceof ServiceError && error.code === 'storage')) throw error;
      this.#storageFailed(error);
    }
  }

  #perform(action: ReplicaAction): void {
    switch (action.kind) {
      case 'send':
        this.#around.send(action.to, this.file, action.message, action.deferrable === true);
        return;
      case 'promise':
        this.#completeWith(this.subject.promise(action.epoch), { kind: 'promised', epoch: action.epoch });
        return;
      case 'apply': {
        const { epoch, seq, operation, sessions } = action;
        const work = this.subject.apply(epoch, seq, operation, sessions);
        this.#completeWith(this.#viewSynced(work, operation.view !== undefined), {
          kind: 'applied',
          epoch,
          seq,
        });
        return;
      }
      case 'fetch-state':
        void this.#fetch(action.epoch, action.from, action.urgent);
        return;
      case 'install-part': {
        const { position } = action;
        assert(this.subject.installPart !== undefined, 'A subject that fetches parts installs them');
        this.#completeWith(this.subject.installPart(position), { kind: 'part-installed', position });
        return;
      }
      case 'install': {
        const { epoch, seq, sessions, fetched } = action;
        this.#completeWith(this.subject.install(epoch, seq, sessions, fetched), {
          kind: 'installed',
          epoch,
          seq,
        });
        return;
      }
      case 'begin': {
        const { epoch, sessions } = action;
        // The store executes them in this order, so that an installed epoch is always promised.
        const begun = [this.subject.promise(epoch), this.subject.install(epoch, 0, sessions, false)];
        this.#completeWith(
          Promise.all(begun).then(() => undefined),
          { kind: 'begun', epoch },
        );
        return;
      }
      case 'flush-local': {
        const { seq } = this.subject.record();
        this.#completeWith(this.subject.flush(), { kind: 'flush-done', seq });
        return;
      }
      case 'committed':
        this.#takeWaiter(this.#tickets, action.ticket)?.resolve({ seq: action.seq, result: action.result });
        return;
      case 'refused': {
        const code = action.reason;
        this.#reject(
          action.ticket,
          new ServiceError(code, `Cannot change file ${this.file}: ${REFUSALS[code]}`),
        );
        return;
      }
      case 'unknown': {
        this.#reject(
          action.ticket,
          new ServiceError('unknown', `The primary of file ${this.file} changed meanwhile`),
        );
        return;
      }
      case 'flushed':
        this.#takeWaiter(this.#flushes, action.ticket)?.resolve();
        return;
      case 'advanced':
        this.#notify(this.#advanceListeners);
        return;
      case 'role-changed':
        if (action.role === 'backup' || action.role === 'failed') this.subject.abandon();
        this.#around.log[isCatalogCell(this.file) ? 'info' : 'debug'](
          { file: this.file, role: action.role, epoch: action.epoch.counter },
          isCatalogCell(this.file) ? 'role in the catalog changed' : 'role changed',
        );
        this.#notify(this.#roleListeners);
        if (action.role === 'active') this.#around.becamePrimary(this.file);
        return;
      case 'members-changed':
        this.#takeWaiter(this.#changes, action.ticket)?.resolve(action.view);
        return;
      case 'view-changed':
        this.#around.viewChanged(this.file, action.view);
        return;
      case 'stopped':
        if (this.#stopWaiters.length === 0) this.#around.stoppedByItself(this.file);
        for (const resolve of this.#stopWaiters.splice(0)) resolve();
        return;
      case 'trace':
        this.#around.log.trace({ file: this.file, mark: action.mark }, action.detail);
        this.#around.marked(this, action.mark, action.detail);
        return;
      default:
        unreachable(action);
    }
  }

  #takeWaiter<Value>(waiters: Map<number, Waiter<Value>>, ticket: number): Waiter<Value> | undefined {
    const waiter = waiters.get(ticket);
    waiters.delete(ticket);
    return waiter;
  }

  #reject(ticket: number, error: ServiceError): void {
    for (const waiters of [this.#tickets, this.#flushes, this.#changes]) {
      this.#takeWaiter<unknown>(waiters as Map<number, Waiter<unknown>>, ticket)?.reject(error);
    }
  }

  #notify(listeners: Set<() => void>): void {
    for (const listener of [...listeners]) listener();
  }

  /** Resolves when the operation is applied, and it and all earlier ones that change the view are synced. */
  #viewSynced(work: Promise<void>, hasView: boolean): Promise<void> {
    if (!hasView && this.#syncing === null) return work;
    const before = this.#syncing ?? Promise.resolve();
    const synced = before.then(() => work).then(() => (hasView ? this.subject.flush() : undefined));
    // `synced` reports a failure of `work`; this avoids an unhandled rejection.
    work.catch(() => undefined);
    this.#syncing = synced;
    const over = (): void => {
      if (this.#syncing === synced) this.#syncing = null;
    };
    synced.then(over, over);
    return synced;
  }

  #completeWith(work: Promise<void>, done: ReplicaEvent): void {
    this.#actionsInProgress++;
    work.then(
      () => {
        this.#actionsInProgress--;
        this.step(done);
      },
      (error: unknown) => {
        this.#actionsInProgress--;
        this.#storageFailed(error);
      },
    );
  }

  #closedError(): ServiceError {
    return new ServiceError(
      'not-primary',
      `The replica of file ${this.file} was closed during the request: retry`,
    );
  }

  #storageFailed(error: unknown): void {
    if (this.#closed) return;
    if (error instanceof AssertionFailure) {
      this.#around.fatal(error);
      return;
    }
    // Actions already under way fail with the same error: log the first only.
    if (this.role !== 'failed')
      this.#around.log.error({ file: this.file, err: error }, 'replica failed: disk error');
    this.step({ kind: 'storage-failed', reason: error instanceof Error ? error.message : String(error) });
  }

  async #fetch(epoch: Epoch, from: ServerId, urgent: boolean): Promise<void> {
    assert(from !== this.#around.self, 'A replica does not fetch from itself');
    this.#actionsInProgress++;
    try {
      const ask = (server: ServerId, method: string, payload: Uint8Array): Promise<Uint8Array> => {
        const request = encodeStateTransferCall(this.file, epoch, method, payload);
        return this.#around.call(server, STATE_CALL, request, FETCH_TIMEOUT_MS);
      };
      const { self, catchUpPace } = this.#around;
      const others = viewVoters(this.status().view).filter((server) => server !== self && server !== from);
      const fetched = await this.subject.fetch((method, payload) => ask(from, method, payload), {
        others,
        callOther: ask,
        ...(urgent ? {} : { pace: catchUpPace }),
      });
      const { position, view, sessions, lost = [], isPart = false } = fetched;
      this.#fetchFailure = null;
      if (lost.length > 0)
        this.#around.log.error(
          { file: this.file, lost },
          'no replica has intact copies of these objects: start the other servers of the file',
        );
      this.step({ kind: 'state-fetched', epoch, position, view, sessions, isPart });
    } catch (error) {
      if (error instanceof AssertionFailure) return this.#around.fatal(error);
      const reason = error instanceof Error ? error.message : String(error);
      if (reason !== this.#fetchFailure)
        this.#around.log.info({ file: this.file, from, reason }, 'restarting the state transfer');
      this.#fetchFailure = reason;
      if (error instanceof ServiceError && error.code === 'no-space') await this.#pause(NO_SPACE_PAUSE_MS);
      this.step({ kind: 'state-failed', epoch, reason });
    } finally {
      this.#actionsInProgress--;
    }
  }

  #pause(ms: number): Promise<void> {
    const { clock, wakes } = this.#around;
    return new Promise((resolve) => wakes.at(clock.nowMs() + ms, resolve));
  }

  #scheduleWake(): void {
    const atMs = this.#core.nextWakeMs();
    if (atMs === null || atMs >= this.#wakeAtMs) return;
    this.#wakeAtMs = atMs;
    this.#around.wakes.at(atMs, () => {
      if (this.#wakeAtMs === atMs) this.#wakeAtMs = Infinity;
      this.step({ kind: 'tick' });
    });
  }
}

const REFUSALS = {
  'not-primary': 'this server is not its primary',
  'session-expired': "the request's session has expired, so its outcome is unknown",
  busy: 'its replicas are already being moved: wait, and retry',
} as const;
