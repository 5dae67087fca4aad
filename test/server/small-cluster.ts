import { pino } from 'pino';
import { type CellId, catalogOfInode, type FileId, type Incarnation, type ServerId } from '../../base/ids.ts';
import { type View, viewsConflict } from '../../replica/view.ts';
import { LeaseDriver } from '../../server/drivers/lease-driver.ts';
import { WakeQueue } from '../../server/drivers/wake-queue.ts';
import type { CatalogAccess } from '../../server/file/catalog-access.ts';
import { LocalFileService } from '../../server/file/file-service.ts';
import { IdleFiles } from '../../server/file/idle-files.ts';
import { AGREE_CALL, AGREE_SYNCED_CALL, QuorumReads } from '../../server/file/quorum-reads.ts';
import { ReplicaHost } from '../../server/file/replica-host.ts';
import { PREPARE_CALL, SUCCEED_CALL, Succession } from '../../server/file/succession.ts';
import { UNLOCKED_CALL, UnlockedEnds } from '../../server/file/unlocked-ends.ts';
import { Clock } from '../../server/process/clock.ts';
import { CHANNEL_LEASE } from '../../server/transport/transport.ts';
import type { Attributes, Command } from '../../wire/catalog-api.ts';
import { patientWorld } from '../patient-world.ts';
import { MemoryStore } from '../storage/memory-store.ts';
import { MemoryNetwork, type MemoryTransport } from '../transport/memory-transport.ts';

export const FILE = 7 as FileId;
export const OBJECT_BYTES = 128 * 1024;
const LEASE_MS = 500;
const CLOCK_SKEW_MAX_MS = 20;
/** Small enough to be reached. */
export const LOCK_BOUNDS = { server: 90, holder: 50 };
/** Resolves after so many milliseconds of the servers' time. */
export const delay = (ms: number): Promise<void> => patientWorld.sleep(ms);

export const LOCK_LEASE_MS = 3 * LEASE_MS;

/** No other server becomes a file's primary meanwhile, however slow the machine is. */
export const STEADY: Partial<SmallTiming> = { leaseMs: 2_000 };

/** Times are in milliseconds. */
interface SmallTiming {
  readonly idleMs: number;
  readonly leaseMs: number;
  readonly heartbeatMs: number;
  /** Reads and syncs are tried without a primary first, as in real servers. */
  readonly agrees: boolean;
  /** @see LeaseDriverParts.mayAcquire */
  readonly mayAcquire: (cell: CellId, peer: ServerId) => boolean;
}

const TIMING: SmallTiming = {
  idleMs: 60_000,
  leaseMs: LEASE_MS,
  heartbeatMs: 20,
  agrees: false,
  mayAcquire: () => true,
};

export interface SmallServer {
  readonly id: ServerId;
  readonly store: MemoryStore;
  readonly host: ReplicaHost;
  readonly lease: LeaseDriver;
  readonly files: LocalFileService;
  readonly idle: IdleFiles;
  readonly transport: MemoryTransport;
  /** Files for which it has recorded that a replica may be here. */
  readonly held: FileId[];
  /** Files that others reported with other members for the view here, and by which server. */
  readonly conflicts: readonly (readonly [FileId, ServerId])[];
  /** The servers that shall be primary instead; null while it is not draining. */
  yieldsTo: ServerId | null;
}

/** Servers in one process without disk, network and HTTP: hosts, leases and the file service, as in a real one. */
export class SmallCluster {
  readonly servers: SmallServer[] = [];
  /** Errors that would have ended a process. */
  readonly fatal: unknown[] = [];
  readonly network = new MemoryNetwork(patientWorld);
  /** Servers that have reported full disks to the others; their stores still accept all writes. */
  readonly full = new Set<ServerId>();
  /** Servers that synced their index because a primary was about to end, and whether the file had a primary then. */
  readonly prepared: { readonly at: ServerId; readonly isLed: boolean }[] = [];
  /** Successors in the order in which primaries chose them. */
  readonly named: { readonly at: ServerId; readonly file: FileId; readonly successor: ServerId }[] = [];
  readonly view: View;
  readonly #closers: (() => void)[] = [];

  constructor(
    ids: readonly string[],
    catalog: Partial<CatalogAccess> = {},
    timing: Partial<SmallTiming> = {},
  ) {
    this.view = { number: 1, members: ids as ServerId[] };
    for (const id of this.view.members)
      this.servers.push(this.#server(id, catalog, { ...TIMING, ...timing }));
  }

  /** Resolves when the recovery wait is over everywhere. */
  async ready(): Promise<void> {
    while (this.servers.some(({ lease }) => lease.recoveringMs() > 0)) await delay(10);
  }

  close(): void {
    for (const close of this.#closers) close();
  }

  #server(id: ServerId, catalog: Partial<CatalogAccess>, timing: SmallTiming): SmallServer {
    const { idleMs, leaseMs, heartbeatMs, agrees, mayAcquire } = timing;
    const clock = new Clock(patientWorld);
    const wakes = new WakeQueue(patientWorld, clock);
    const log = pino({ level: 'silent' });
    const store = new MemoryStore();
    const held: FileId[] = [];
    const conflicts: [FileId, ServerId][] = [];
    const incarnation = (this.servers.length + 1) as Incarnation;
    const fatal = (error: unknown) => void this.fatal.push(error);
    const made: { transport?: MemoryTransport } = {};
    const transport = (): MemoryTransport => made.transport as MemoryTransport;
    const host: ReplicaHost = new ReplicaHost({
      world: patientWorld,
      self: id,
      incarnation,
      clock,
      wakes,
      log,
      store,
      heartbeatMs,
      quietHeartbeatMs: 2 * heartbeatMs,
      silentMs: 200,
      readLeaseMs: 100,
      startGuardMs: 0,
      departed: { view: () => null },
      catchUpBytesPerSecond: Infinity,
      trustOfNew: () => 'intact',
      viewStated: (file, here, there, server) => {
        if (viewsConflict(here, there)) conflicts.push([file, server]);
      },
      recordReplica: (file) => void held.push(file),
      viewChanged: (file, view) => lease.viewChanged(file, view),
      becamePrimary: (file) => files.becamePrimary(file),
      stoppedByItself: (file) => lease.release(file),
      transport,
      isClockSound: () => true,
      fatal,
    });
    const lease: LeaseDriver = new LeaseDriver({
      world: patientWorld,
      self: id,
      peers: this.view.members.filter((member) => member !== id),
      leaseMs,
      algorithm: 'flease',
      clockSkewMaxMs: CLOCK_SKEW_MAX_MS,
      clock,
      wakes,
      log,
      drawIncarnation: () => incarnation,
      transport,
      knownView: (cell) => host.knownView(cell),
      mayAcquire,
      ownLeaseChanged: (cell, untilMs, view) => host.leaseChanged(cell, untilMs, view),
      fatal,
    });
    const quorumReads = new QuorumReads({
      self: id,
      clock,
      log,
      store,
      host,
      isConnected: (server) => transport().isConnected(server),
      call: (to, method, payload, timeoutMs) => transport().call(to, method, payload, timeoutMs),
    });
    const files = new LocalFileService({
      world: patientWorld,
      ...(agrees ? { quorumReads } : {}),
      isServer: async (server) => this.view.members.includes(server),
      self: id,
      clock,
      log,
      store,
      host,
      lease,
      catalog: {
        attributes: async () => attributesOf(this.view),
        recentAttributes: () => null,
        command: async (command) => answerTo(command),
        durably: async (command) => catalog.command?.(command) ?? answerTo(command),
        flush: async () => undefined,
        catalogOf: catalogOfInode,
        epoch: () => 1,
        ...catalog,
      },
      successor: () => this.servers.find((one) => one.id === id)?.yieldsTo ?? null,
      isAt: async (server, file) => this.servers.find((one) => one.id === server)?.store.record(file) != null,
      lockLeaseMs: LOCK_LEASE_MS,
      lockBounds: LOCK_BOUNDS,
      notifyUnlockedEnd: (ending, servers) => lockEndings.notify(ending, servers),
      operationTimeoutMs: 3_000,
      isConnected: (server) => server === id || transport().isConnected(server),
      isDiskFull: (server) => this.full.has(server),
    });
    const succession = new Succession({
      self: id,
      log,
      isConnected: (server) => transport().isConnected(server),
      call: (to, method, payload, timeoutMs) => transport().call(to, method, payload, timeoutMs),
      successorChosen: (file, successor) => void this.named.push({ at: id, file, successor }),
      succeed: (file, from) => files.replicas.succeed(file, from),
      peers: () => this.view.members,
      reach: async () => undefined,
      flush: async () => {
        this.prepared.push({
          at: id,
          isLed: this.servers.some((server) => server.host.loaded(FILE)?.isPrimary),
        });
      },
    });
    const lockEndings = new UnlockedEnds({
      world: patientWorld,
      log,
      isConnected: (server) => transport().isConnected(server),
      call: (to, method, payload, timeoutMs, deferrable) =>
        transport().call(to, method, payload, timeoutMs, deferrable),
      received: (ending) => files.epochEndedUnlocked(ending),
    });
    const idle = new IdleFiles({
      ...{ world: patientWorld, clock, log, host, lease, succession, idleMs },
      settling: files.settling,
    });
    made.transport = this.network.join({
      server: id,
      log,
      handlers: {
        message: (from, channel, payload, tail) => {
          if (channel === CHANNEL_LEASE) lease.receive(from, payload);
          else host.receive(from, channel, payload, tail);
        },
        connected: (peer) => host.connected(peer),
        disconnected: () => undefined,
        call: async (from, method, payload) => {
          if (method === PREPARE_CALL) return succession.servePrepare();
          if (method === UNLOCKED_CALL) return lockEndings.serve(payload);
          if (method === AGREE_CALL) return quorumReads.serve(from, payload);
          if (method === AGREE_SYNCED_CALL) return quorumReads.serveSynced(from, payload);
          return method === SUCCEED_CALL ? succession.serve(from, payload) : host.serve(method, payload);
        },
      },
    });
    this.#closers.push(() => {
      lease.stopCompeting();
      void idle.releaseAll(0);
      lease.closeDriver();
      host.close();
      wakes.close();
      void transport().close();
    });
    return { id, store, host, lease, files, idle, held, conflicts, yieldsTo: null, transport: transport() };
  }
}

function answerTo(command: Command): object {
  return command.kind === 'plan-members' ? { planned: command.members } : {};
}

function attributesOf(view: View): Attributes {
  return {
    inode: FILE,
    kind: 'file',
    live: true,
    view: view.number,
    replicas: view.members,
    objectBytes: OBJECT_BYTES,
  } as unknown as Attributes;
}

export function requestOf(number: number) {
  return { session: 1, number, since: 0 };
}
