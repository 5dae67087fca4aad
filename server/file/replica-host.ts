import type { Logger } from 'pino';
import { LruMap } from '../../base/bounded-map.ts';
import { ServiceError } from '../../base/errors.ts';
import { type FileId, type Incarnation, isCatalogCell, type ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { decodeReplicaMessage, encodeReplicaPieces } from '../../replica/codec.ts';
import { firstEpoch, isUnusedCopy, mayCreateWithContents } from '../../replica/create-with-contents.ts';
import type { Epoch, Position } from '../../replica/epoch.ts';
import { epochEqual } from '../../replica/epoch.ts';
import { messageView, type ReplicaMessage } from '../../replica/messages.ts';
import type { View } from '../../replica/view.ts';
import { viewVoters } from '../../replica/view.ts';
import { ByteReader, ByteWriter, MalformedError } from '../../wire/bytes.ts';
import { ReplicaDriver, type ReplicaSurroundings } from '../drivers/replica-driver.ts';
import { decodeStateTransferCall, STATE_CALL } from '../drivers/state-call.ts';
import type { WakeQueue } from '../drivers/wake-queue.ts';
import type { Clock } from '../process/clock.ts';
import type { FetchedObject, FileStore, FirstState, NewReplica, NewTrust } from '../storage/store.ts';
import {
  CHANNEL_REPLICA,
  CHANNEL_REPLICA_VIEW,
  type MessageChannel,
  type Transport,
} from '../transport/transport.ts';
import { CREATION_OPERATIONS } from './creation-operations.ts';
import type { DepartedFiles } from './departed-files.ts';
import { FileSubject } from './file-subject.ts';
import { TransferPace } from './transfer-pace.ts';

const FIRST_VIEW = 1;

/** Files with a known end of an epoch of this process; others get a primary before a change. */
const ENDED_MAX = 100_000;

/** Operations that a primary keeps for lagging replicas, in bytes per file. */
const RETAINED_BYTES_MAX = 16 * 1024 * 1024;

function unmeasured(): void {}

export interface ReplicaHostParts {
  readonly self: ServerId;
  readonly incarnation: Incarnation;
  readonly world: World;
  readonly clock: Clock;
  readonly wakes: WakeQueue;
  readonly log: Logger;
  readonly store: FileStore;
  readonly departed: Pick<DepartedFiles, 'view'>;
  readonly heartbeatMs: number;
  readonly quietHeartbeatMs: number;
  readonly silentMs: number;
  readonly readLeaseMs: number;
  /** For at most this long, in milliseconds, the process is bound by promises of an earlier one to a primary. */
  readonly startGuardMs: number;
  /** For all replicas that catch up here, together; `Infinity` for no bound. */
  readonly catchUpBytesPerSecond: number;
  /** The trust of a replica that is created here: `intact` if this store certainly never had one of the file. */
  trustOfNew(file: FileId): NewTrust;
  /** Durably: if a replica of the file is lost with the power later, `trustOfNew` is not `intact`. */
  recordReplica(file: FileId): void;
  commitBegins?(file: FileId): () => void;
  viewChanged(file: FileId, view: View): void;
  becamePrimary(file: FileId): void;
  stoppedByItself(file: FileId): void;
  viewStated?(file: FileId, here: View, there: View, server: ServerId): void;
  marked?: ReplicaSurroundings['marked'];
  isClockSound(): boolean;
  /** A function, because the transport is created after its handlers, one of which is this host. */
  transport(): Transport;
  fatal(error: unknown): void;
}

export interface FileCopy {
  readonly state: FirstState;
  readonly objects: AsyncIterable<FetchedObject>;
}

export interface CreationContext {
  readonly epoch: Epoch;
  readonly view: View;
  readonly objectBytes: number;
}

/**
 * All replicas of this server that are in use: the catalog's and those of files. It delivers messages and lease
 * changes, creates an empty replica if a view names this server, and answers fetches of their state.
 */
export class ReplicaHost {
  readonly #parts: ReplicaHostParts;
  readonly #around: ReplicaSurroundings;
  readonly #drivers = new Map<FileId, ReplicaDriver>();
  /** Being removed from the store: they must not be loaded. */
  readonly #removing = new Set<FileId>();
  /** Being created with their first operations: they must not be loaded. */
  readonly #creating = new Map<FileId, Promise<unknown>>();
  /** Those of them that copy another file's contents. */
  readonly #copying = new Set<FileId>();
  /** Unloaded files: the end of an epoch of this process, which it may resume (docs/design/mount.md). */
  readonly #ended = new LruMap<FileId, Position>(ENDED_MAX);
  readonly #damaged = new Map<FileId, Set<number>>();
  /** Of loaded files: it never changes, and is needed even after the store failed. */
  readonly #objectBytes = new Map<FileId, number>();
  /** Unloaded files whose last replica here is bound for a while. */
  readonly #boundUntilMs = new Map<FileId, number>();
  readonly #changedViews = new Map<FileId, View>();
  #encoded: ({ readonly message: ReplicaMessage } & ReturnType<typeof encodeReplicaPieces>) | null = null;

  constructor(parts: ReplicaHostParts) {
    this.#parts = parts;
    for (const file of parts.store.filesWithViewAfter(FIRST_VIEW)) {
      const record = parts.store.record(file);
      if (record !== null) this.#noteView(file, record.view);
    }
    const { self, incarnation, world, clock, wakes, log, heartbeatMs, quietHeartbeatMs, silentMs } = parts;
    const { readLeaseMs } = parts;
    const startGuardUntilMs = clock.nowMs() + parts.startGuardMs;
    this.#around = {
      self,
      incarnation,
      world,
      clock,
      wakes,
      log,
      heartbeatMs,
      quietHeartbeatMs,
      silentMs,
      readLeaseMs,
      startGuardUntilMs: (file) => Math.max(startGuardUntilMs, this.#boundUntilMs.get(file) ?? -Infinity),
      catchUpPace: new TransferPace(parts.catchUpBytesPerSecond, {
        nowMs: () => clock.nowMs(),
        at: (atMs, wake) => wakes.at(atMs, wake),
      }),
      viewChanged: (file, view) => {
        this.#noteView(file, view);
        parts.viewChanged(file, view);
      },
      becamePrimary: (file) => parts.becamePrimary(file),
      stoppedByItself: (file) => parts.stoppedByItself(file),
      marked: (replica, mark, detail) => parts.marked?.(replica, mark, detail),
      retainedBytesMax: RETAINED_BYTES_MAX,
      commitStarted: (file) => parts.commitBegins?.(file) ?? unmeasured,
      send: (to, file, message, deferrable) => this.#send(to, file, message, deferrable),
      call: (to, method, payload, timeoutMs) => parts.transport().call(to, method, payload, timeoutMs),
      isClockSound: parts.isClockSound,
      fatal: parts.fatal,
    };
  }

  /** Adds a catalog's replica, which stays loaded until `release`. */
  adopt(make: (around: ReplicaSurroundings) => ReplicaDriver): ReplicaDriver {
    const driver = make(this.#around);
    this.#drivers.set(driver.file, driver);
    this.#noteView(driver.file, driver.view);
    return driver;
  }

  /** Unloads a catalog's replica. Its messages are dropped from now on: only `adopt` adds one again. */
  release(driver: ReplicaDriver): void {
    this.unload(driver);
    this.#changedViews.delete(driver.file);
    this.#ended.delete(driver.file);
  }

  has(file: FileId): boolean {
    return this.#drivers.has(file) || this.#parts.store.record(file) !== null;
  }

  loaded(file: FileId): ReplicaDriver | null {
    return this.#drivers.get(file) ?? null;
  }

  all(): ReplicaDriver[] {
    return [...this.#drivers.values()];
  }

  /** Loads the replica if necessary; its record must exist. */
  load(file: FileId): ReplicaDriver {
    const loaded = this.#drivers.get(file);
    if (loaded !== undefined) return loaded;
    this.#assertLoadable(file);
    const subject = new FileSubject(this.#parts.world, file, this.#parts.store, this.#damagedOf(file));
    const driver = new ReplicaDriver(file, subject, this.#around);
    driver.usedAtMs = this.#parts.clock.nowMs();
    this.#drivers.set(file, driver);
    this.#objectBytes.set(file, this.#parts.store.attributes(file).objectBytes);
    // Once: an epoch must not be resumed twice from the same position.
    const position = this.#ended.get(file);
    if (position !== undefined && this.#ended.delete(file)) driver.step({ kind: 'ended', position });
    return driver;
  }

  /** The file's damaged objects, kept for later replicas of this process: they would fail on the same objects. */
  #damagedOf(file: FileId): Set<number> {
    const known = this.#damaged.get(file) ?? new Set();
    this.#damaged.set(file, known);
    return known;
  }

  /**
   * Creates replicas of files that no client knows yet, with their first operations. May be repeated.
   * @returns for each, null if it is stored here, and a loss of power that takes it will be noticed; else the error
   */
  async createWithContents(
    replicas: readonly NewReplica[],
    where: CreationContext,
  ): Promise<(Error | null)[]> {
    const { store } = this.#parts;
    const { epoch, view, objectBytes } = where;
    const underWay = replicas.flatMap(({ file }) => this.#creating.get(file) ?? []);
    if (underWay.length > 0) await Promise.allSettled(underWay);
    const free = replicas.filter(({ file }) => this.#mayCreateWithContents(file, view));
    // Because of this record, a replica that is created again after a loss of power does not vote as if there had been
    // none: so no sync is needed. This includes backups beyond the majority, which acknowledge later operations.
    for (const { file } of replicas) this.#parts.recordReplica(file);
    const storing =
      free.length === 0 ? Promise.resolve([]) : store.createWithContents(free, epoch, view, objectBytes);
    for (const { file } of free) this.#creating.set(file, storing);
    const stored = await storing.finally(() => {
      for (const { file } of free) this.#creating.delete(file);
    });
    const outcomes = new Map(free.map(({ file }, place) => [file, stored[place] ?? null]));
    return replicas.map(({ file, operations }) => {
      const outcome = outcomes.get(file);
      if (outcome !== undefined) return outcome;
      const here = store.record(file);
      if (here !== null) this.#parts.viewStated?.(file, here.view, view, epoch.server);
      return this.#errorUnlessSameCreation(file, epoch, operations.length);
    });
  }

  /**
   * Creates the replica of a file whose contents are another file's until its first change (docs/design/clones.md).
   * @param begin called once no replica of the file is created or loaded here meanwhile; null if it gets none
   * @returns whether a complete copy is here, synced, and unused
   */
  async createCopy(file: FileId, begin: () => Promise<FileCopy | null>): Promise<boolean> {
    await this.creationEnded(file);
    const here = this.#isBarred(file) ? null : this.#parts.store.record(file);
    if (here !== null) {
      if (!isUnusedCopy(here)) return false;
      // An earlier process may have ended before it had synced it.
      await this.#parts.store.flushIndex();
      return true;
    }
    this.#assertLoadable(file);
    const copying = this.#createCopy(file, begin);
    this.#creating.set(file, copying);
    this.#copying.add(file);
    try {
      return await copying;
    } finally {
      this.#creating.delete(file);
      this.#copying.delete(file);
    }
  }

  /** Whether a replica of the file is being created here from another file's contents, which may take long. */
  isCopying(file: FileId): boolean {
    return this.#copying.has(file);
  }

  async #createCopy(file: FileId, begin: () => Promise<FileCopy | null>): Promise<boolean> {
    const copy = await begin();
    if (copy === null || this.#removing.has(file)) return false;
    await this.#parts.store.createWithState(file, copy.state, copy.objects);
    return true;
  }

  /** Resolves when no replica of the file is being created here with contents. */
  async creationEnded(file: FileId): Promise<void> {
    const storing = this.#creating.get(file);
    if (storing !== undefined) await Promise.allSettled([storing]);
  }

  /** A file that this process created has its entry now: the creation's epoch may be resumed. To be called once. */
  directoryEntryCreated(file: FileId): void {
    const { store, self, incarnation } = this.#parts;
    if (store.record(file) === null) return;
    const position = { epoch: firstEpoch(self, incarnation), seq: CREATION_OPERATIONS };
    const driver = this.#drivers.get(file);
    if (driver === undefined) this.#ended.set(file, position);
    else driver.step({ kind: 'ended', position });
  }

  /** Whether changes of an unloaded file may be ordered here at once, as far as is known without loading it. */
  isResumable(file: FileId): boolean {
    return this.#ended.has(file) && !this.#isBarred(file);
  }

  /** @returns null if the replica here is exactly what the same creation stored before; else the error */
  #errorUnlessSameCreation(file: FileId, epoch: Epoch, seq: number): Error | null {
    const { store } = this.#parts;
    const here = this.#drivers.has(file) ? null : store.record(file);
    const isSame = here !== null && epochEqual(here.promised, epoch) && epochEqual(here.installed, epoch);
    if (!isSame || here.seq !== seq)
      return new ServiceError(
        'precondition-failed',
        `Cannot create file ${file} with contents here: this server has, or had, a replica of it`,
      );
    return null;
  }

  /** Whether this server may store the file with contents: it is a member, and certainly never had a replica of it. */
  #mayCreateWithContents(file: FileId, view: View): boolean {
    const { self, store, departed } = this.#parts;
    if (this.#drivers.has(file) || this.#isBarred(file) || departed.view(file) !== null) return false;
    return mayCreateWithContents(self, view, store.record(file), this.#parts.trustOfNew(file));
  }

  #isBarred(file: FileId): boolean {
    return this.#removing.has(file) || this.#creating.has(file);
  }

  create(file: FileId, view: View, objectBytes: number): ReplicaDriver {
    this.#assertLoadable(file);
    if (this.#parts.store.record(file) === null) {
      const { store, departed } = this.#parts;
      // A replica that was removed here has forgotten what it acknowledged.
      const trust = departed.view(file) === null ? this.#parts.trustOfNew(file) : 'lost';
      store.create(file, view, objectBytes, trust);
      this.#noteView(file, view);
    }
    return this.load(file);
  }

  /** Unloads a replica. Keeps for the next one where its epoch ended, and until when its promises bind. */
  unload(driver: ReplicaDriver): void {
    if (this.#drivers.get(driver.file) === driver) {
      const position = driver.resumable;
      if (position !== null) this.#ended.set(driver.file, position);
      this.#drivers.delete(driver.file);
      this.#objectBytes.delete(driver.file);
      if (this.#damaged.get(driver.file)?.size === 0) this.#damaged.delete(driver.file);
    }
    driver.close();
    const nowMs = this.#parts.clock.nowMs();
    for (const [file, untilMs] of this.#boundUntilMs) {
      if (untilMs > nowMs) break;
      this.#boundUntilMs.delete(file);
    }
    if (driver.boundUntilMs > nowMs) this.#boundUntilMs.set(driver.file, driver.boundUntilMs);
  }

  /** Whether the replica is bound by no promise to a primary. @see Replica.isFree */
  isUnbound(file: FileId): boolean {
    const driver = this.#drivers.get(file);
    if (driver !== undefined) return driver.isUnbound;
    return !this.#isBarred(file) && this.#parts.clock.nowMs() >= this.#around.startGuardUntilMs(file);
  }

  async remove(file: FileId): Promise<void> {
    this.#removing.add(file);
    try {
      const driver = this.#drivers.get(file);
      if (driver !== undefined) this.unload(driver);
      await this.#parts.store.remove(file);
      this.#changedViews.delete(file);
      this.#damaged.delete(file);
      this.#ended.delete(file);
    } finally {
      this.#removing.delete(file);
    }
  }

  leaseChanged(file: FileId, untilMs: number, view: number): void {
    this.#drivers.get(file)?.step({ kind: 'lease', untilMs, view });
  }

  /** @returns the recorded view of a file whose members ever changed; null for all others */
  knownView(file: FileId): View | null {
    const here = this.#changedViews.get(file) ?? null;
    const departed = this.#parts.departed.view(file);
    return (here?.number ?? 0) > (departed?.number ?? 0) ? here : departed;
  }

  #noteView(file: FileId, view: View): void {
    if (view.number > FIRST_VIEW) this.#changedViews.set(file, view);
    // A view that was never committed may vanish again.
    else this.#changedViews.delete(file);
  }

  connected(peer: ServerId): void {
    for (const driver of this.all()) driver.step({ kind: 'connected', peer });
  }

  /** Logs and drops malformed frames, and those for which the store has no space. */
  receive(from: ServerId, channel: MessageChannel, payload: Uint8Array, tail?: Uint8Array): void {
    try {
      if (channel === CHANNEL_REPLICA_VIEW) {
        const reader = new ByteReader(payload);
        const objectBytes = reader.uint32();
        this.#deliver(from, reader.raw(reader.remaining), tail, objectBytes);
      } else {
        this.#deliver(from, payload, tail, null);
      }
    } catch (error) {
      if (error instanceof MalformedError) {
        this.#parts.log.warn({ from, reason: error.message }, 'a malformed replica message was dropped');
      } else if (error instanceof ServiceError) {
        // The sender repeats what matters; the store's failures are reported to those who wait for its work.
        this.#parts.log.info({ from, reason: error.message }, 'a replica message was dropped');
      } else {
        throw error;
      }
    }
  }

  async serve(method: string, payload: Uint8Array): Promise<Uint8Array> {
    if (method !== STATE_CALL) throw new MalformedError(`Call "${method}" is unknown`);
    const request = decodeStateTransferCall(payload);
    const driver = this.#drivers.get(request.file) ?? this.#loadExisting(request.file);
    driver.usedAtMs = this.#parts.clock.nowMs();
    return driver.serve(request.epoch, request.method, request.payload);
  }

  close(): void {
    for (const driver of this.all()) this.unload(driver);
  }

  #loadExisting(file: FileId): ReplicaDriver {
    if (!isCatalogCell(file) && this.#parts.store.record(file) !== null) return this.load(file);
    throw new ServiceError('not-found', `This server has no replica of file ${file}`);
  }

  /** Gives a message to its replica, which may be loaded or created for it; without one, the message is dropped. */
  #deliver(
    from: ServerId,
    frame: Uint8Array,
    tail: Uint8Array | undefined,
    objectBytes: number | null,
  ): void {
    const { file, message } = decodeReplicaMessage(frame, tail);
    const driver = this.#drivers.get(file) ?? this.#admit(file, message, objectBytes);
    if (driver === null) return;
    // Answers of backups do not count as use of the file, or it would never be idle.
    if (messageView(message) !== null) driver.usedAtMs = this.#parts.clock.nowMs();
    driver.step({ kind: 'message', from, message });
  }

  /** Loads a replica, or creates it if the view names this server. */
  #admit(file: FileId, message: ReplicaMessage, objectBytes: number | null): ReplicaDriver | null {
    if (isCatalogCell(file) || this.#isBarred(file)) return null;
    if (this.#parts.store.record(file) !== null) return this.load(file);
    const view = messageView(message);
    if (view === null || objectBytes === null) return null;
    // A member, or a server that is to become one and starts by fetching the state.
    const votes = viewVoters(view).includes(this.#parts.self);
    if (!votes && message.kind !== 'install') return null;
    // In that view this server was a member once: a server that still uses it gets no vote here.
    const departed = this.#parts.departed.view(file);
    if (votes && departed !== null && view.number <= departed.number) return null;
    return this.create(file, view, objectBytes);
  }

  #assertLoadable(file: FileId): void {
    if (this.#removing.has(file))
      throw new ServiceError('not-found', `The replica of file ${file} is being removed`);
    if (this.#creating.has(file))
      throw new ServiceError('busy', `The replica of file ${file} is being created: retry`);
  }

  /** Sends a replica's message; one with a view, with the object size, so that its receiver can create a replica. */
  #send(to: ServerId, file: FileId, message: ReplicaMessage, isDeferrable: boolean): void {
    // Nothing is encoded for a disconnected peer; heartbeats find out when it returns.
    if (!this.#parts.transport().isConnected(to)) return;
    const deferrable = isDeferrable && this.#areAllConnected(file);
    const { frame, tail } = this.#piecesOf(file, message);
    const objectBytes = this.#objectBytes.get(file);
    if (messageView(message) === null || objectBytes === undefined) {
      this.#parts.transport().send(to, CHANNEL_REPLICA, frame, { tail, deferrable });
      return;
    }
    const payload = new ByteWriter(4 + frame.length).uint32(objectBytes).raw(frame).finish();
    this.#parts.transport().send(to, CHANNEL_REPLICA_VIEW, payload, { deferrable });
  }

  /** Whether all replicas are reachable: if not, a message to the backup beyond the majority is not deferred. */
  #areAllConnected(file: FileId): boolean {
    const driver = this.#drivers.get(file);
    if (driver === undefined) return false;
    const { self, transport } = this.#parts;
    return viewVoters(driver.view).every((server) => server === self || transport().isConnected(server));
  }

  /** An operation is the same message for every backup: it is encoded once. */
  #piecesOf(file: FileId, message: ReplicaMessage): ReturnType<typeof encodeReplicaPieces> {
    if (this.#encoded?.message !== message) {
      this.#encoded = { message, ...encodeReplicaPieces(file, message) };
    }
    return this.#encoded;
  }
}
