import { ServiceError } from '../../base/errors.ts';
import { systemWorld } from '../../world/system-world.ts';
import { abandonedSnapshots } from '../backup/own-snapshot.ts';
import { ClusterClient } from '../cluster/cluster-client.ts';
import { NamedLeaseClient } from '../lease/named-lease-client.ts';
import type { Access } from '../transport/access.ts';
import { ANSWER_MS } from './doctor-client.ts';
import { type Finding, warning } from './finding.ts';

/** Finds snapshots that aborted backups left behind. @returns only those found before a request fails, if one does */
export async function examineSnapshots(servers: readonly string[], access: Access): Promise<Finding[]> {
  const client = new ClusterClient({ world: systemWorld, servers, access });
  const leases = new NamedLeaseClient({ world: systemWorld, servers, access });
  const call = { failFast: true, timeoutMs: ANSWER_MS } as const;
  const findings: Finding[] = [];
  try {
    const { volumes } = await client.query({ kind: 'volumes' }, call);
    for (const { name: volume } of volumes) {
      const { snapshots } = await client.query({ kind: 'snapshots', volume }, call);
      const names = snapshots.map(({ name }) => name);
      for (const name of await abandonedSnapshots(leases, volume, names, call))
        findings.push(
          warning(
            `snapshot ${volume}@${name}`,
            'an aborted backup has left it behind',
            `the next "leasehold backup ${volume} …" removes it, or "leasehold snapshot rm ${volume}@${name}"`,
          ),
        );
    }
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
  } finally {
    await Promise.all([client.close(), leases.close()]);
  }
  return findings;
}
