import type { Logger } from 'pino';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { Position } from '../../replica/epoch.ts';
import type { View } from '../../replica/view.ts';
import type { Attributes, ContentVersion } from '../../wire/catalog-api.ts';
import type { WritePart } from '../../wire/file-operation.ts';
import type {
  AcknowledgedRequest,
  FileExtent,
  FileState,
  FlushResult,
  Whence,
  WriteGuard,
  WriteResult,
} from '../../wire/http-api.ts';
import type { LockClaim, LockGrant, LockList, LockOrder, LockRenewal } from '../../wire/lock-api.ts';
import type { PrimaryWaiterParts } from '../routing/primary-waiter.ts';
import type {
  ChangeRequest,
  CopyPiece,
  FileLeaseStatus,
  FileLocated,
  FileRead,
  FileService,
  Hole,
} from '../routing/service-interfaces.ts';
import type { FileStore } from '../storage/store.ts';
import type { Traffic } from '../telemetry/traffic.ts';
import { Authorities } from './authority.ts';
import type { CatalogAccess } from './catalog-access.ts';
import { ChangeAdmission } from './change-admission.ts';
import { FileChanges } from './file-changes.ts';
import { FileCreations } from './file-creations.ts';
import { FileLocks } from './file-locks.ts';
import { FilePrimaries } from './file-primaries.ts';
import { FileReads } from './file-reads.ts';
import { FileReplicas } from './file-replicas.ts';
import { FileSettling } from './file-settling.ts';
import { fileLeaseStatus } from './file-state.ts';
import type { LockBounds } from './lock-counts.ts';
import { MemberChanges } from './member-changes.ts';
import type { QuorumReads } from './quorum-reads.ts';
import { ReleasedFiles } from './released-files.ts';
import type { ReplicaHost } from './replica-host.ts';
import type { UnlockedEnd } from './unlocked-ends.ts';

export interface FileServiceParts extends PrimaryWaiterParts {
  readonly log: Logger;
  readonly store: FileStore;
  readonly host: ReplicaHost;
  readonly catalog: CatalogAccess;
  readonly lockLeaseMs: number;
  readonly lockBounds?: LockBounds;
  notifyUnlockedEnd(ending: UnlockedEnd, servers: readonly ServerId[]): void;
  successor?(view: View): ServerId | null;
  isAt(server: ServerId, file: FileId, position: Position): Promise<boolean>;
  readonly quorumReads?: Pick<QuorumReads, 'read' | 'readAlways' | 'flush'>;
  readonly traffic?: Traffic;
  isServer(server: ServerId): Promise<boolean>;
}

/** Dispatches each call to the part of the service for it. */
export class LocalFileService implements FileService {
  readonly replicas: FileReplicas;
  readonly memberChanges: MemberChanges;
  readonly settling: FileSettling;
  readonly #parts: FileServiceParts;
  readonly #creations: FileCreations;
  readonly #reads: FileReads;
  readonly #changes: FileChanges;
  readonly #locks: FileLocks;

  constructor(parts: FileServiceParts) {
    this.#parts = parts;
    const authorities = new Authorities(parts);
    const releasedFiles = new ReleasedFiles(parts);
    const replicas = new FileReplicas({ ...parts, authorities, releasedFiles });
    const reads = new FileReads({ ...parts, authorities, replicas });
    const locks = new FileLocks(parts);
    const primaries = new FilePrimaries({ ...parts, locks, replicas });
    const settling = new FileSettling({ ...parts, authorities, replicas, primaries, reads });
    const admission = new ChangeAdmission({ ...parts, replicas, releasedFiles });
    this.#changes = new FileChanges({
      ...parts,
      ...{ authorities, replicas, primaries, admission, releasedFiles, reads, settling },
    });
    this.#creations = new FileCreations({ ...parts, authorities, replicas });
    this.memberChanges = new MemberChanges({ ...parts, replicas });
    this.#reads = reads;
    this.#locks = locks;
    this.replicas = replicas;
    this.settling = settling;
  }

  read(file: FileId, offset: number, length: number, asOf?: ContentVersion): Promise<FileRead> {
    return this.#reads.read(file, offset, length, asOf);
  }

  locate(file: FileId, offset: number, length: number, asOf?: ContentVersion): Promise<FileLocated> {
    return this.#reads.locate(file, offset, length, asOf);
  }

  readStale(file: FileId, offset: number, length: number): Promise<FileRead> {
    return this.#reads.readStale(file, offset, length);
  }

  extent(file: FileId, offset: number, whence: Whence, asOf?: ContentVersion): Promise<FileExtent> {
    return this.#reads.extent(file, offset, whence, asOf);
  }

  state(file: FileId): Promise<FileState> {
    return this.#reads.state(file);
  }

  write(
    file: FileId,
    request: ChangeRequest,
    offset: number | 'append',
    bytes: Uint8Array,
    guard?: WriteGuard,
  ): Promise<WriteResult> {
    return this.#changes.write(file, request, offset, bytes, guard);
  }

  writeParts(file: FileId, request: ChangeRequest, parts: readonly WritePart[]): Promise<WriteResult> {
    return this.#changes.writeParts(file, request, parts);
  }

  truncate(file: FileId, request: ChangeRequest, sizeBytes: number): Promise<WriteResult> {
    return this.#changes.truncate(file, request, sizeBytes);
  }

  punch(file: FileId, request: ChangeRequest, hole: Hole): Promise<WriteResult> {
    return this.#changes.punch(file, request, hole);
  }

  copy(
    file: FileId,
    request: ChangeRequest,
    toOffset: number,
    read: () => Promise<CopyPiece>,
  ): Promise<WriteResult> {
    return this.#changes.copy(file, request, toOffset, read);
  }

  flush(file: FileId, unsynced?: readonly AcknowledgedRequest[]): Promise<FlushResult> {
    return this.settling.flush(file, unsynced);
  }

  seal(file: FileId, expected?: ContentVersion): Promise<FileState> {
    return this.settling.seal(file, expected);
  }

  settle(file: FileId): Promise<FileState> {
    return this.settling.settle(file);
  }

  creating(attributes: Attributes): void {
    this.#creations.creating(attributes);
  }

  created(attributes: Attributes): void {
    this.#creations.created(attributes);
  }

  notCreated(attributes: Attributes): void {
    this.#creations.notCreated(attributes);
  }

  async becomePrimary(file: FileId): Promise<FileState> {
    return this.#reads.stateAt(file, await this.replicas.primary(file));
  }

  async changeMembers(file: FileId, members: readonly ServerId[], decidedBy?: number): Promise<View> {
    return (await this.memberChanges.change(file, members, decidedBy)).view;
  }

  async lock(file: FileId, order: LockOrder, holder: string | null = null): Promise<LockGrant> {
    return this.#locks.lock(await this.replicas.primary(file), order, holder);
  }

  async renewLocks(file: FileId, body: LockClaim, holder: string | null = null): Promise<LockRenewal> {
    return this.#locks.renew(await this.replicas.primary(file), body, holder);
  }

  async locks(file: FileId): Promise<LockList> {
    return this.#locks.list(await this.replicas.primary(file));
  }

  epochEndedUnlocked(ending: UnlockedEnd): void {
    this.#locks.epochEndedUnlocked(ending, this.#parts.host.loaded(ending.file));
  }

  leaseStatus(file: FileId): FileLeaseStatus | null {
    return fileLeaseStatus(this.#parts, file);
  }

  /** Called when this server became primary or members changed: prepares locks, reports members, ends a begun seal. */
  becamePrimary(file: FileId): void {
    const { host, store, log } = this.#parts;
    const driver = host.loaded(file);
    if (driver === null) return;
    this.#locks.becamePrimary(driver);
    this.memberChanges.reports.report(driver);
    if (!driver.isPrimary || store.attributes(file).seal !== 'sealed') return;
    this.seal(file).catch((error: unknown) => {
      log.info({ file, err: error }, 'a file is sealed; its final seal is still pending');
    });
  }
}
