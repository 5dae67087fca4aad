/**
 * Commands that the catalog's primary refuses because of servers that leave the cluster, or have left it. It does so before a command is
 * replicated, so that members of all releases execute the same commands to the same effect.
 */
import { ServiceError } from '../base/errors.ts';
import { majority } from '../base/quorum.ts';
import type { Command, CommandOf } from '../wire/catalog-api.ts';
import type { Tables } from './tables.ts';

/** @throws ServiceError where the command would count on a server that leaves, or take a server that is counted on */
export function refuseLeaving(tables: Tables, command: Command): void {
  switch (command.kind) {
    case 'reserve-inodes': {
      const leaving = command.members?.flat().find((id) => stateOf(tables, id) !== 'in');
      if (leaving === undefined) return;
      throw new ServiceError('precondition-failed', `Server ${leaving} leaves, and takes no new files`);
    }
    case 'bear': {
      // The client creates the files in the ordinary way: then a majority of the servers that are left has the contents.
      const { replicas, elsewhere = [] } = command;
      refuseOut(tables, [...replicas, ...elsewhere.flatMap((one) => one.replicas)], 'precondition-failed');
      return;
    }
    case 'replace-with-contents':
      // So that the server that received the contents stores them in the ordinary way.
      refuseOut(tables, command.replicas, 'bad-request');
      return;
    case 'server-remove':
      if (!command.dead) refuseNeeded(tables, command);
      return;
    default:
  }
}

/** Contents that were stored before the file has a name may be at a majority with this server only. */
function refuseOut(
  tables: Tables,
  members: readonly string[],
  code: 'precondition-failed' | 'bad-request',
): void {
  const out = members.find((id) => stateOf(tables, id) === 'out');
  if (out !== undefined)
    throw new ServiceError(code, `Server ${out} is removed, and has no part of new files`);
}

/**
 * The members of a file are fixed when its inode number is reserved. A file may still come of each number, as long as it is not void, which
 * then needs a majority of servers that are not removed.
 */
function refuseNeeded(tables: Tables, { id }: CommandOf<'server-remove'>): void {
  const isNeeded = tables.numbers.reservedSets().some((members) => {
    const left = members.filter((member) => member !== id && stateOf(tables, member) !== 'out');
    return members.includes(id) && left.length < majority(members.length);
  });
  if (!isNeeded) return;
  throw new ServiceError(
    'precondition-failed',
    `Server ${id} is needed for the majority of files that clients are about to create: their inode numbers are reserved for ` +
      '15 minutes at the most. Drain it, and try again then',
  );
}

/** Of a server that has not registered yet nothing bad is known. */
function stateOf(tables: Tables, id: string): 'in' | 'draining' | 'out' {
  return tables.servers.server(id)?.state ?? 'in';
}
