import { LruMap } from '../../base/bounded-map.ts';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { View } from '../../replica/view.ts';
import type { LeaseDriver } from '../drivers/lease-driver.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';
import type { Clock } from '../process/clock.ts';
import type { FileAttributes, FileStore } from '../storage/store.ts';
import { lastPrimaryElsewhere } from './last-primary.ts';
import type { ReplicaHost } from './replica-host.ts';
import { finalAttributes } from './sealed-file.ts';

/**
 * The authority by which this server orders changes of a file, or answers reads. docs/ARCHITECTURE.md has the
 * conditions; `test/architecture/authorities.test.ts` compares that table with this union.
 */
export type Authority =
  | { readonly kind: 'active-primary'; readonly driver: ReplicaDriver }
  | { readonly kind: 'creating-server'; readonly driver: ReplicaDriver }
  | { readonly kind: 'resumed-primary'; readonly driver: ReplicaDriver }
  | { readonly kind: 'read-lease-backup'; readonly driver: ReplicaDriver }
  | { readonly kind: 'quorum-read' }
  | { readonly kind: 'sealed-replica'; readonly attributes: FileAttributes }
  | { readonly kind: 'local-disk'; readonly by: SealedReplica | ReplicaReader }
  | { readonly kind: 'stale-on-request' };

type Of<Kind extends Authority['kind']> = Extract<Authority, { kind: Kind }>;

/** Gives changes their positions in the order. */
export type Orderer = Of<'active-primary' | 'creating-server' | 'resumed-primary'>;
/** Answers reads with the newest committed state. */
export type Reader = Of<'active-primary' | 'read-lease-backup' | 'quorum-read' | 'sealed-replica'>;
/** Answers reads from the replica here while its right to do so lasts. */
export type ReplicaReader = Of<'active-primary' | 'read-lease-backup'>;
export type SealedReplica = Of<'sealed-replica'>;
export type QuorumRead = Of<'quorum-read'>;
export type LocalDisk = Of<'local-disk'>;
export type StaleOnRequest = Of<'stale-on-request'>;

/** If a request for a file was sent to the last primary less than this time ago, the next one is served here. */
const SENT_BACK_MS = 1_000;
const SENT_MAX = 10_000;

export interface AuthoritiesParts {
  readonly self: ServerId;
  readonly clock: Clock;
  readonly store: FileStore;
  readonly host: ReplicaHost;
  readonly lease: LeaseDriver;
  /** Quorum reads and syncs; absent if every request needs a primary. */
  readonly quorumReads?: unknown;
  successor?(view: View): ServerId | null;
  isConnected(server: ServerId): boolean;
  isDiskFull?(server: ServerId): boolean;
}

/**
 * Decides by which authority this server may order changes of a file or answer its reads, from what it knows in this
 * tick: it waits for nothing and sends no request. `FileReplicas` acquires a missing authority.
 */
export class Authorities {
  readonly #parts: AuthoritiesParts;
  readonly #sentMs = new LruMap<FileId, number>(SENT_MAX);

  constructor(parts: AuthoritiesParts) {
    this.#parts = parts;
  }

  orderer(driver: ReplicaDriver): Orderer | null {
    if (!this.#mayOrder(driver)) return null;
    if (driver.isPrimary) return { kind: 'active-primary', driver };
    const { own } = this.#parts.lease.view(driver.file);
    return { kind: own ? 'creating-server' : 'resumed-primary', driver };
  }

  /** @returns the first authority that this server has to answer reads; null if none, after requesting a read lease */
  reader(file: FileId): Reader | null {
    return this.sealed(file) ?? this.quorum(file) ?? this.replica(file);
  }

  /** @returns the authority of a replica with the final seal, which needs no lease and no majority; else null */
  sealed(file: FileId): SealedReplica | null {
    const attributes = finalAttributes(this.#parts.store, file);
    return attributes === null ? null : { kind: 'sealed-replica', attributes };
  }

  /** Whether to ask a majority: null if the file has a primary, as known here, or this replica may answer by itself. */
  quorum(file: FileId): QuorumRead | null {
    const { quorumReads, host, lease } = this.#parts;
    if (quorumReads === undefined) return null;
    const { own, holder } = lease.view(file);
    const mayAsk = !own && holder === null && host.loaded(file)?.readGate(0) !== 'serve';
    return mayAsk ? { kind: 'quorum-read' } : null;
  }

  /** @returns null if the replica here is neither primary nor has a read lease, which it then requests */
  replica(file: FileId): ReplicaReader | null {
    const driver = this.#parts.host.loaded(file);
    if (driver === null || driver.readGate(0) === 'not-primary') return null;
    driver.usedAtMs = this.#parts.clock.nowMs();
    return replicaReader(driver);
  }

  /**
   * Checks the right to answer, in the tick in which contents are pinned: a backup whose read lease ended before, and
   * that gets another one later, would return contents that were outdated in between.
   * @param dependsOnSeq the last operation that the contents show
   * @throws ServiceError `not-primary`
   */
  assertMayAnswer(driver: ReplicaDriver, dependsOnSeq: number): ReplicaReader {
    if (driver.readGate(dependsOnSeq) === 'not-primary') throw mayNotAnswer(driver.file);
    return replicaReader(driver);
  }

  /**
   * For a process on this machine that reads this server's disk. It waits for no election: meanwhile it reads as any
   * other client.
   * @throws ServiceError `not-primary` if the replica here may not answer in this tick
   */
  localDisk(file: FileId): LocalDisk {
    const by = this.sealed(file) ?? this.replica(file);
    if (by === null) throw mayNotAnswer(file);
    return { kind: 'local-disk', by };
  }

  stale(file: FileId): SealedReplica | StaleOnRequest {
    return this.sealed(file) ?? { kind: 'stale-on-request' };
  }

  /**
   * For a change of a file without a primary: its last primary can resume the file (docs/design/mount.md), so that a
   * file that is written in one place stays there. Records that the caller is sent there: it is, once.
   * @returns the last primary; null if this server is to serve the change
   */
  sendToLastPrimary(file: FileId): ServerId | null {
    const { own, holder } = this.#parts.lease.view(file);
    if (own || holder !== null) return null;
    const { store, self, clock, isConnected, isDiskFull = () => false } = this.#parts;
    const record = store.record(file);
    const last = record === null ? null : lastPrimaryElsewhere(record, self);
    if (last === null || !isConnected(last) || isDiskFull(last)) return null;
    const nowMs = clock.nowMs();
    if (nowMs - (this.#sentMs.get(file) ?? -Infinity) < SENT_BACK_MS) return null;
    this.#sentMs.set(file, nowMs);
    return last;
  }

  /** @returns the server that is to be primary instead of this one, which is being drained; null if this one may be */
  successor(view: View): ServerId | null {
    return this.#parts.successor?.(view) ?? null;
  }

  /** Whether the replica may order, and this server has the lease, or resumes without one and could get it. */
  #mayOrder({ file, orders, view }: ReplicaDriver): boolean {
    const { lease } = this.#parts;
    const { own, holder } = lease.view(file);
    if (!orders || own) return orders;
    return holder === null && lease.isUsable() && this.successor(view) === null;
  }
}

function replicaReader(driver: ReplicaDriver): ReplicaReader {
  return { kind: driver.isPrimary ? 'active-primary' : 'read-lease-backup', driver };
}

function mayNotAnswer(file: FileId): ServiceError {
  return new ServiceError('not-primary', `This server may not answer reads of file ${file} now`);
}
