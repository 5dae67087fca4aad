import { dateOfNs } from '../../base/dates.ts';
import { ServiceError } from '../../base/errors.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import type { CallOptions } from '../transport/exchange.ts';

/**
 * @param attributes of the inode as it is now
 * @throws ServiceError `protected`, which names the inode, if a retention or a flag of it prevents changes
 */
export async function assertUnprotected(
  client: ClusterClient,
  attributes: Attributes,
  call: CallOptions,
): Promise<void> {
  const why = protectionOf(attributes, client.world.wallMs());
  if (why !== null) throw await protectedFailure(client, attributes.inode, why, call);
}

/** Adds the path to a server's refusal to change an inode: that has only its number. */
export async function namedRefusal(
  client: ClusterClient,
  inode: number,
  refusal: ServiceError,
  call: CallOptions,
): Promise<ServiceError> {
  const { attributes } = await client.query({ kind: 'attributes', inode }, call);
  const why = protectionOf(attributes, client.world.wallMs());
  // Its directory may be protected, or the servers' clock of retentions is behind.
  return why === null ? refusal : protectedFailure(client, inode, why, call);
}

async function protectedFailure(
  client: ClusterClient,
  inode: number,
  why: string,
  call: CallOptions,
): Promise<ServiceError> {
  const [found] = (await client.query({ kind: 'paths', inodes: [inode] }, call)).paths;
  const name = found === undefined ? `inode ${inode}` : `${found.volume}:${found.path}`;
  return new ServiceError('protected', `Cannot change ${name}: it is ${why}`);
}

function protectionOf(
  { flags = [], retainUntilNs }: Pick<Attributes, 'flags' | 'retainUntilNs'>,
  nowMs: number,
): string | null {
  const isRetained =
    retainUntilNs !== undefined && BigInt(retainUntilNs) / 1_000_000n > BigInt(Math.floor(nowMs));
  const reasons = [...flags, ...(isRetained ? [`retained until ${dateOfNs(retainUntilNs)}`] : [])];
  return reasons.length === 0 ? null : reasons.join(' and ');
}
