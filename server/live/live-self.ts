import { type FileId, isCatalogCell, type ServerId } from '../../base/ids.ts';
import type { LivePart, LiveReplica } from '../../wire/live-api.ts';
import type { LeaseDriver } from '../drivers/lease-driver.ts';
import type { ReplicaHost } from '../file/replica-host.ts';
import type { FileLeaseStatus } from '../routing/service-interfaces.ts';
import type { StatusOfMembership } from '../status/status-service.ts';
import type { FileStore } from '../storage/store.ts';
import type { Traffic } from '../telemetry/traffic.ts';
import type { ServerEvents } from './server-events.ts';

/** How long a reading of the free disk space is reported, in milliseconds. */
const SPACE_MS = 1_000;

export interface LiveSelfParts {
  readonly self: ServerId;
  readonly host: ReplicaHost;
  readonly lease: LeaseDriver;
  readonly store: Pick<FileStore, 'space' | 'record'>;
  readonly traffic: Traffic;
  readonly events: ServerEvents;
  readonly membership: Pick<StatusOfMembership, 'state' | 'moving'>;
  nowMs(): number;
  isDiskFull(): boolean;
  failure(): string | null;
  leaseStatus(file: FileId): FileLeaseStatus | null;
}

/** This server's report for the live view, cheap enough for several requests a second. */
export class OwnLiveReport {
  readonly #parts: LiveSelfParts;
  readonly #startedMs: number;
  #space = { freeBytes: 0, totalBytes: 0 };
  #spaceAtMs = -Infinity;

  constructor(parts: LiveSelfParts) {
    this.#parts = parts;
    this.#startedMs = parts.nowMs();
  }

  /** Reports the server, those of `files` that it has, and the events after number `after`. */
  async report(files: readonly FileId[], after: number): Promise<LivePart> {
    const { self, host, lease, events, traffic, membership } = this.#parts;
    const moving = membership.moving();
    const failure = this.#parts.failure();
    const { freeBytes, totalBytes } =
      failure === null ? await this.#spaceNow() : { freeBytes: 0, totalBytes: 0 };
    const recoveringMs = Math.ceil(lease.recoveringMs());
    const inUse = host.all().filter(({ file }) => !isCatalogCell(file));
    const primaries = inUse.filter(({ isPrimary }) => isPrimary).length;
    return {
      server: self,
      life: events.life,
      state:
        failure !== null
          ? 'storage-failed'
          : lease.clockFault
            ? 'clock-fault'
            : recoveringMs > 0
              ? 'recovering'
              : 'serving',
      recoveringMs,
      membership: membership.state(),
      uptimeMs: Math.round(this.#parts.nowMs() - this.#startedMs),
      primaries,
      backups: inUse.length - primaries,
      freeBytes,
      totalBytes,
      diskFull: this.#parts.isDiskFull(),
      clockOffsets: lease.clockOffsets(),
      writes: traffic.writes,
      reads: traffic.reads,
      sinceWriteMs: traffic.sinceWriteMs,
      files: files.map((file) => this.#replicaOf(file)).filter((status) => status !== null),
      happenings: events.after(after),
      last: events.last,
      ...(moving !== null && moving.done < moving.total ? { moving } : {}),
    };
  }

  #replicaOf(file: FileId): LiveReplica | null {
    const leaseStatus = this.#parts.leaseStatus(file);
    if (leaseStatus === null) return null;
    const { role, epoch, view, lease, replicas } = leaseStatus;
    return {
      file,
      role,
      epoch,
      version: this.#parts.store.record(file)?.seq ?? 0,
      members: view.members,
      lease,
      replicas: replicas.map(({ server, role, state, seq, lagOperations }) => ({
        server,
        role,
        state,
        version: seq,
        lagOperations,
      })),
    };
  }

  async #spaceNow(): Promise<{ freeBytes: number; totalBytes: number }> {
    const nowMs = this.#parts.nowMs();
    if (nowMs - this.#spaceAtMs >= SPACE_MS) {
      this.#spaceAtMs = nowMs;
      this.#space = await this.#parts.store.space();
    }
    return this.#space;
  }
}
