/**
 * The snapshot that an archive is read from. It is bound to a lease that its maker holds: where that is over, the maker is gone, and whoever
 * archives the volume next removes what was left behind (decision 0056).
 */
import { hostname } from 'node:os';
import { ServiceError } from '../../base/errors.ts';
import type { ClusterClient } from '../cluster-client.ts';
import type { CallOptions } from '../exchange.ts';
import type { HeldLease } from '../lease/held-lease.ts';
import type { NamedLeaseClient } from '../lease/named-lease-client.ts';

/** Whoever makes an archive may be stopped for a little less without losing its snapshot, in milliseconds; as long as servers allow anyway. */
const TTL_MS = 10_000;
/** Snapshots of such names are bound to leases. No other is ever removed. */
const BOUND_NAME = /^backup\.[0-9a-f]{12}$/;

export interface OwnSnapshotParts {
  readonly client: ClusterClient;
  readonly leases: NamedLeaseClient;
  /** Tells people what happened beside the archive. */
  readonly tell: (text: string) => void;
}

/**
 * Makes a snapshot of the volume for the time of `work`, and removes those that others left behind.
 *
 * @param work given its name, or null where whoever asks may make none; `signal` is aborted where the snapshot may be removed by others
 */
export async function withOwnSnapshot(
  parts: OwnSnapshotParts,
  volume: string,
  call: CallOptions & { readonly signal: AbortSignal },
  work: (name: string | null, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const { client, tell } = parts;
  const id = client.world.randomBytes(6).toString('hex');
  const lease = await heldFor(parts, volume, `backup.${id}`, call);
  // By the older name, which nobody else removes, where leases are not for whoever asks.
  const name = lease === null ? `backup-${id}` : `backup.${id}`;
  const signal = lease === null ? call.signal : AbortSignal.any([call.signal, lease.lost]);
  try {
    if (lease !== null) await removeLeftBehind(parts, volume, name, call);
    if (!(await isMade(client, volume, name, call))) {
      tell('the archive is of no single moment: a snapshot takes the role admin');
      await work(null, signal);
      return;
    }
    try {
      await work(name, signal);
    } finally {
      // Also where whoever waits has been told to stop.
      await client.command({ kind: 'snapshot-remove', volume, name }).catch(unlessGone);
    }
  } finally {
    await lease?.release();
  }
}

/** @returns the lease, before there is a snapshot that is bound to it; null where whoever asks may have none */
async function heldFor(
  { leases }: OwnSnapshotParts,
  volume: string,
  name: string,
  { signal }: { readonly signal: AbortSignal },
): Promise<HeldLease | null> {
  const owner = `leasehold backup@${hostname()}, process ${process.pid}`;
  try {
    return await leases.acquire(leaseOf(volume, name), { ttlMs: TTL_MS, owner, wait: false, signal });
  } catch (error) {
    // `bad-request`: the servers grant none that is so long.
    if (error instanceof ServiceError && (error.code === 'forbidden' || error.code === 'bad-request'))
      return null;
    throw error;
  }
}

async function isMade(
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

/** @returns those of the snapshots that archives which were broken off have left behind: nobody holds their leases any more */
export async function leftBehind(
  leases: NamedLeaseClient,
  volume: string,
  names: readonly string[],
  call: CallOptions,
): Promise<string[]> {
  const left: string[] = [];
  for (const name of names)
    if (BOUND_NAME.test(name) && !(await leases.look(leaseOf(volume, name), call)).held) left.push(name);
  return left;
}

/** What cannot be found out, or removed, is left to the next archive. */
async function removeLeftBehind(
  { client, leases, tell }: OwnSnapshotParts,
  volume: string,
  own: string,
  call: CallOptions,
): Promise<void> {
  try {
    const { snapshots } = await client.query({ kind: 'snapshots', volume }, call);
    const others = snapshots.map(({ name }) => name).filter((name) => name !== own);
    for (const name of await leftBehind(leases, volume, others, call)) {
      await client.command({ kind: 'snapshot-remove', volume, name }, call);
      tell(`removed the snapshot ${volume}@${name}, which an archive that was broken off has left behind`);
    }
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    if (error.code !== 'not-found' && error.code !== 'forbidden')
      tell(`snapshots that broken off archives left behind are still there: ${error.message}`);
  }
}

function unlessGone(error: unknown): void {
  if (!(error instanceof ServiceError) || error.code !== 'not-found') throw error;
}

function leaseOf(volume: string, name: string): string {
  return `backup/${volume}@${name}`;
}
