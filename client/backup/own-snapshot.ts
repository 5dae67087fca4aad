/**
 * The snapshot that an archive is read from. It is bound to a lease that the backup holds: once the lease has ended, so
 * has the backup, and the next one of the volume removes the snapshot (decision 0056).
 */
import { hostname } from 'node:os';
import { ServiceError } from '../../base/errors.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import type { HeldLease } from '../lease/held-lease.ts';
import type { NamedLeaseClient } from '../lease/named-lease-client.ts';
import type { CallOptions } from '../transport/exchange.ts';

/** A backup may be suspended for a little less without losing its snapshot; within the servers' bound. */
const TTL_MS = 10_000;
/** Snapshots of such names are bound to leases. No other is ever removed. */
const BOUND_NAME = /^backup\.[0-9a-f]{12}$/;

export interface OwnSnapshotParts {
  readonly client: ClusterClient;
  readonly leases: NamedLeaseClient;
  readonly report: (text: string) => void;
}

/**
 * Creates a snapshot of the volume for the time of `work`, and removes those of aborted backups.
 * @param work gets the name, null if the user may create none; `signal` is aborted once others may remove the snapshot
 */
export async function withOwnSnapshot(
  parts: OwnSnapshotParts,
  volume: string,
  call: CallOptions & { readonly signal: AbortSignal },
  work: (name: string | null, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const { client, report } = parts;
  const id = client.world.randomBytes(6).toString('hex');
  const lease = await acquireLease(parts, volume, `backup.${id}`, call);
  // A user without leases gets a name that no other process removes.
  const name = lease === null ? `backup-${id}` : `backup.${id}`;
  const signal = lease === null ? call.signal : AbortSignal.any([call.signal, lease.lost]);
  try {
    if (lease !== null) await removeLeftBehind(parts, volume, name, call);
    if (!(await createSnapshot(client, volume, name, call))) {
      report('the archive may mix states of several moments: only the role admin may create a snapshot');
      await work(null, signal);
      return;
    }
    try {
      await work(name, signal);
    } finally {
      // Also after the user has aborted the command.
      await client.command({ kind: 'snapshot-remove', volume, name }).catch(ignoreNotFound);
    }
  } finally {
    await lease?.release();
  }
}

/** Acquires the lease to which the snapshot is then bound. @returns null if the user may have none */
async function acquireLease(
  { leases }: OwnSnapshotParts,
  volume: string,
  name: string,
  { signal }: { readonly signal: AbortSignal },
): Promise<HeldLease | null> {
  const owner = `leasehold backup@${hostname()}, process ${process.pid}`;
  try {
    return await leases.acquire(leaseOf(volume, name), { ttlMs: TTL_MS, owner, wait: false, signal });
  } catch (error) {
    // `bad-request`: the servers grant no lease of this length.
    if (error instanceof ServiceError && (error.code === 'forbidden' || error.code === 'bad-request'))
      return null;
    throw error;
  }
}

async function createSnapshot(
  client: ClusterClient,
  volume: string,
  name: string,
  call: CallOptions,
): Promise<boolean> {
  try {
    await client.command({ kind: 'snapshot-create', volume, name }, call);
    return true;
  } catch (error) {
    if (error instanceof ServiceError && error.code === 'forbidden') return false;
    throw error;
  }
}

/** @returns the snapshots of aborted backups: those whose leases have no holder */
export async function abandonedSnapshots(
  leases: NamedLeaseClient,
  volume: string,
  names: readonly string[],
  call: CallOptions,
): Promise<string[]> {
  const abandoned: string[] = [];
  for (const name of names)
    if (BOUND_NAME.test(name) && !(await leases.show(leaseOf(volume, name), call)).held) abandoned.push(name);
  return abandoned;
}

/** Removes snapshots of aborted backups; those that cannot be checked or removed are left to the next backup. */
async function removeLeftBehind(
  { client, leases, report }: OwnSnapshotParts,
  volume: string,
  own: string,
  call: CallOptions,
): Promise<void> {
  try {
    const { snapshots } = await client.query({ kind: 'snapshots', volume }, call);
    const others = snapshots.map(({ name }) => name).filter((name) => name !== own);
    for (const name of await abandonedSnapshots(leases, volume, others, call)) {
      await client.command({ kind: 'snapshot-remove', volume, name }, call);
      report(`removed the snapshot ${volume}@${name}, which an aborted backup had left behind`);
    }
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    if (error.code !== 'not-found' && error.code !== 'forbidden')
      report(`cannot remove the snapshots of aborted backups: ${error.message}`);
  }
}

function ignoreNotFound(error: unknown): void {
  if (!(error instanceof ServiceError) || error.code !== 'not-found') throw error;
}

function leaseOf(volume: string, name: string): string {
  return `backup/${volume}@${name}`;
}
