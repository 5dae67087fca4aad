import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import type { SnapshotInfo } from '../../wire/catalog-api.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { type MirrorNames, sessionOfWriter } from './mirror-names.ts';

/** Refusals of the last command of a session: that is forgotten, or its snapshot is retained, or was removed. */
const ENDED: ReadonlySet<ErrorCode> = new Set(['session-expired', 'protected', 'not-found']);

/** A volume at one end of a mirror. */
export class MirrorEnd {
  readonly client: ClusterClient;
  readonly volume: string;
  readonly names: MirrorNames;

  constructor(client: ClusterClient, volume: string, names: MirrorNames) {
    this.client = client;
    this.volume = volume;
    this.names = names;
  }

  async snapshots(call: CallOptions): Promise<readonly SnapshotInfo[]> {
    return (await this.client.query({ kind: 'snapshots', volume: this.volume }, call)).snapshots;
  }

  async root(call: CallOptions): Promise<number> {
    return (await this.client.query({ kind: 'volume', name: this.volume }, call)).volume.root;
  }

  async isEmpty(call: CallOptions): Promise<boolean> {
    const inode = await this.root(call);
    const { entries } = await this.client.query({ kind: 'list', inode, after: '', countMax: 1 }, call);
    return entries.length === 0;
  }

  async create(name: string, call: CallOptions): Promise<SnapshotInfo> {
    return (await this.client.command({ kind: 'snapshot-create', volume: this.volume, name }, call)).snapshot;
  }

  async remove(name: string, call: CallOptions): Promise<void> {
    await this.client
      .command({ kind: 'snapshot-remove', volume: this.volume, name }, call)
      .catch((error: unknown) => {
        if (!(error instanceof ServiceError) || error.code !== 'not-found') throw error;
      });
  }

  /** Removes a snapshot that is not needed any more. A retained one stays. */
  async removeOld(name: string, call: CallOptions): Promise<void> {
    await this.remove(name, call).catch((error: unknown) => {
      if (!(error instanceof ServiceError) || error.code !== 'protected') throw error;
    });
  }

  /**
   * Runs `work`, which may change names and attributes in the volume, as the only process that does: commands of
   * earlier processes, or of an earlier attempt of this one, that are still on their way are refused from now on. For
   * that, each session of commands begins with a mark in the volume, by which the next process ends it.
   * @param assertHeld throws unless this process holds the lease of the volume. The next process looks for marks once
   *   it holds the lease: it finds the mark of each session that was used.
   */
  async alone<Value>(assertHeld: () => void, call: CallOptions, work: () => Promise<Value>): Promise<Value> {
    const { client, volume, names } = this;
    const own = new Set<number>();
    client.openSessionsWith({
      command: (session) => {
        assertHeld();
        own.add(session);
        return { kind: 'snapshot-create', volume, name: names.writer(session) };
      },
      executed: assertHeld,
    });
    try {
      await this.#endOthers(own, call);
      const value = await work();
      for (const session of own) await this.removeOld(names.writer(session), call);
      return value;
    } finally {
      client.openSessionsWith(null);
    }
  }

  async #endOthers(own: ReadonlySet<number>, call: CallOptions): Promise<void> {
    const { client, volume } = this;
    for (const { name } of await this.snapshots(call)) {
      const session = sessionOfWriter(name);
      if (session === null || own.has(session)) continue;
      try {
        await client.endSession(session, { kind: 'snapshot-remove', volume, name }, call);
      } catch (error) {
        // The session has ended by a refusal, too: the catalog has forgotten it, or remembers the refusal, which it
        // would repeat for as long as that.
        if (!(error instanceof ServiceError) || !ENDED.has(error.code)) throw error;
        await this.removeOld(name, call);
      }
    }
  }

  /** Runs `work` with a snapshot of the volume as it is now. */
  async withPresent<Value>(
    call: CallOptions,
    work: (present: SnapshotInfo) => Promise<Value>,
  ): Promise<Value> {
    // One of a process that was killed is of another moment.
    await this.remove(this.names.check, call);
    const present = await this.create(this.names.check, call);
    const value = await work(present);
    await this.remove(this.names.check, call);
    return value;
  }
}
