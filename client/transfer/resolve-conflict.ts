import { ServiceError } from '../../base/errors.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import type { Finding } from '../../wire/http-api.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import type { RemotePath } from '../cluster/remote-path.ts';
import type { CallOptions } from '../transport/exchange.ts';
import type { ReplicaPiece, ReplicaReader } from './replica-reader.ts';
import { uploadFile } from './upload.ts';

/** One of the histories of a file with several member sets for one view. */
interface History {
  readonly members: readonly string[];
  /** Servers whose replicas have these members. */
  readonly servers: readonly string[];
}

interface Newest {
  readonly server: string;
  readonly reader: ReplicaReader;
  readonly state: ReplicaPiece;
}

export interface Resolved {
  readonly kept: string;
  readonly others: readonly string[];
}

/**
 * Ends a conflict of member sets: copies each history to a file of its own, with one member set. The copy of the kept
 * history takes the file's name, the others get second names; the file with the conflict is unlinked and collected.
 * @param keep id of a server of the history that is kept
 * @throws ServiceError if there is no conflict, or a history changes meanwhile
 */
export async function resolveConflict(
  client: ClusterClient,
  readerOf: (server: string, file: number) => ReplicaReader,
  { volume, path }: RemotePath,
  keep: string,
  call: CallOptions,
): Promise<Resolved> {
  const attributes = await client.resolve(volume, path, call);
  const { inode } = attributes;
  if (attributes.links !== 1)
    throw refused(`"${path}" has ${attributes.links} hard links: remove all but one first`);
  const { findings } = await client.admin.check(inode - 1, call);
  const histories = historiesOf(attributes, findings);
  if (histories.length < 2) throw refused(`File ${inode} has one member set: there is nothing to resolve`);
  const kept = histories.find(({ servers }) => servers.includes(keep));
  if (kept === undefined) {
    const known = histories.map(({ servers }) => servers.join(', ')).join('; ');
    throw refused(`Server ${keep} has no replica of file ${inode}; these have: ${known}`);
  }
  const newest = (history: History): Promise<Newest> => newestOf(history, (id) => readerOf(id, inode), call);
  const own = await newest(kept);
  const others: string[] = [];
  for (const history of histories) {
    if (history === kept) continue;
    const { server, reader, state } = await newest(history);
    const name = `${path}.conflict-${server}`;
    const { mode, uid, gid } = attributes;
    const options = { ...call, mode, uid, gid, expect: { kind: 'nothing' } } as const;
    await uploadFile(client, volume, name, reader.stream(state, call), options);
    others.push(`${volume}:${name}`);
  }
  const expect = { kind: 'inode', inode } as const;
  await uploadFile(client, volume, path, own.reader.stream(own.state, call), { ...call, expect });
  const after = await own.reader.read(0, 0, call);
  if (after.contents !== own.state.contents) {
    throw refused(
      `File ${inode} was written during the copy: the last writes are only in its old replica at ${own.server}, until that is collected`,
    );
  }
  return { kept: own.server, others };
}

/** @returns the sets of servers with the same members: of the catalog and, if a finding names others, of those */
function historiesOf({ inode, replicas }: Attributes, findings: readonly Finding[]): readonly History[] {
  const found = findings.filter(({ file, kind }) => file === inode && kind === 'members');
  const histories = new Map<string, { members: readonly string[]; servers: string[] }>();
  const historyOf = (members: readonly string[]): { servers: string[] } => {
    const key = members.toSorted().join();
    const history = histories.get(key) ?? { members, servers: [] };
    histories.set(key, history);
    return history;
  };
  const own = historyOf(replicas);
  own.servers.push(...replicas.filter((server) => found.every((each) => each.server !== server)));
  for (const { server, members = replicas } of found) historyOf(members).servers.push(server);
  return [...histories.values()].filter(({ servers }) => servers.length > 0);
}

async function newestOf(
  { servers }: History,
  readerOf: (server: string) => ReplicaReader,
  call: CallOptions,
): Promise<Newest> {
  const answers = await Promise.allSettled(
    servers.map(async (server): Promise<Newest> => {
      const reader = readerOf(server);
      return { server, reader, state: await reader.read(0, 0, call) };
    }),
  );
  const read = answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []));
  const [newest] = read.sort((a, b) => versionCompare(b.state.contents, a.state.contents));
  if (newest === undefined) throw refused(`None of the servers ${servers.join(', ')} answered`);
  return newest;
}

function versionCompare(a: string, b: string): number {
  const [epochA = 0, seqA = 0] = a.split('-').map(Number);
  const [epochB = 0, seqB = 0] = b.split('-').map(Number);
  return epochA - epochB || seqA - seqB;
}

function refused(message: string): ServiceError {
  return new ServiceError('precondition-failed', message);
}
