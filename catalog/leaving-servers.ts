/** The catalog's primary refuses before replication, so that members of all releases execute the same commands. */
import { ServiceError } from '../base/errors.ts';
import { majority } from '../base/quorum.ts';
import type { Command, CommandOf, Place } from '../wire/catalog-api.ts';
import { classFits } from '../wire/placement-class.ts';
import { placementClassOf } from './file-class.ts';
import type { InodeRow } from './inode-rows.ts';
import type { Tables } from './tables.ts';
import { resolvePlace } from './walk.ts';

/** @throws ServiceError if the command counts on a leaving server, or removes a needed one */
export function refuseLeaving(tables: Tables, command: Command): void {
  switch (command.kind) {
    case 'reserve-inodes': {
      const leaving = command.members?.flat().find((id) => stateOf(tables, id) !== 'in');
      if (leaving === undefined) return;
      throw new ServiceError('precondition-failed', `Server ${leaving} leaves, and takes no new files`);
    }
    case 'bear': {
      // The client then creates the files the usual way, with a majority of the remaining servers.
      const { replicas, elsewhere = [] } = command;
      refuseOut(tables, [...replicas, ...elsewhere.flatMap((one) => one.replicas)], 'precondition-failed');
      return;
    }
    case 'replace-with-contents':
      // So that the receiving server stores the contents the usual way.
      refuseOut(tables, command.replicas, 'bad-request');
      refuseOtherClass(tables, command);
      return;
    case 'server-remove':
      if (!command.dead) refuseNeeded(tables, command);
      return;
    default:
  }
}

/** @throws ServiceError `code` if a member is removed: contents stored before may be on a majority only with it */
function refuseOut(
  tables: Tables,
  members: readonly string[],
  code: 'precondition-failed' | 'bad-request',
): void {
  const out = members.find((id) => stateOf(tables, id) === 'out');
  if (out !== undefined)
    throw new ServiceError(code, `Server ${out} is removed, and has no part of new files`);
}

/** Refuses contents at other servers than those of the directory's class, which has changed since they were stored. */
function refuseOtherClass(tables: Tables, { place, replicas }: CommandOf<'replace-with-contents'>): void {
  if (tables.classes.isEmpty) return;
  const directory = directoryAt(tables, place);
  if (directory === undefined || directory.placement === 0) return;
  const volume = tables.volumes.row(directory.volume);
  const files = tables.classes.of(volume, directory.placement);
  const required = placementClassOf(files);
  const isAllowed = (id: string): boolean => {
    const server = tables.servers.server(id);
    return server === undefined || classFits(required, server);
  };
  if (replicas.length === files.replicas && replicas.every(isAllowed)) return;
  throw new ServiceError('bad-request', `Files of directory ${directory.id} are on other servers`);
}

function directoryAt(tables: Tables, place: Place): InodeRow | undefined {
  try {
    return resolvePlace(tables, place, true)?.directory;
  } catch (error) {
    // Execution refuses it, and stores the refusal for retries.
    if (error instanceof ServiceError) return undefined;
    throw error;
  }
}

/** Refuses to remove a server if a reserved number, whose members are fixed, would have no majority without it. */
function refuseNeeded(tables: Tables, { id }: CommandOf<'server-remove'>): void {
  const isNeeded = tables.numbers.reservedSets().some((members) => {
    const remaining = members.filter((member) => member !== id && stateOf(tables, member) !== 'out');
    return members.includes(id) && remaining.length < majority(members.length);
  });
  if (!isNeeded) return;
  throw new ServiceError(
    'precondition-failed',
    `Server ${id} is needed for the majority of files that clients are about to create: their inode numbers are reserved for ` +
      '15 minutes at the most. Drain it, and try again then',
  );
}

/** A server that has not registered yet counts as `in`. */
function stateOf(tables: Tables, id: string): 'in' | 'draining' | 'out' {
  return tables.servers.server(id)?.state ?? 'in';
}
