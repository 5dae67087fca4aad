import { ServiceError } from '../../base/errors.ts';
import type { SnapshotInfo } from '../../wire/catalog-api.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import type { CallOptions } from '../transport/exchange.ts';
import type { MirrorNames } from './mirror-names.ts';

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
