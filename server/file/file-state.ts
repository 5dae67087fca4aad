import type { FileId, ServerId } from '../../base/ids.ts';
import { viewVoters } from '../../replica/view.ts';
import type { LeaseDriver } from '../drivers/lease-driver.ts';
import type { FileLeaseStatus } from '../routing/service-interfaces.ts';
import type { FileStore } from '../storage/store.ts';
import type { ReplicaHost } from './replica-host.ts';

interface LeaseStatusParts {
  readonly self: ServerId;
  readonly host: ReplicaHost;
  readonly lease: LeaseDriver;
  readonly store: FileStore;
  isConnected(server: ServerId): boolean;
}

/** @returns what this server knows without a request; null if it has no replica of the file */
export function fileLeaseStatus(
  { host, lease, store, self, isConnected }: LeaseStatusParts,
  file: FileId,
): FileLeaseStatus | null {
  const driver = host.loaded(file);
  const view = driver?.subject.record().view ?? store.record(file)?.view ?? null;
  if (view === null) return null;
  const held = lease.view(file);
  const primary = held.own ? self : held.holder;
  const serving = driver?.isPrimary === true;
  return {
    view,
    primary,
    epoch: driver?.epoch.counter ?? store.record(file)?.promised.counter ?? 0,
    role: serving ? 'primary' : viewVoters(view).includes(self) ? 'backup' : 'none',
    lease: { holder: primary, remainingMs: Math.max(0, held.remainingMs) },
    replicas: serving ? driver.peers(isConnected) : [],
  };
}
