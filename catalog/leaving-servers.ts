/** The catalog's primary refuses before replication, so that members of all releases execute the same commands. */
import { ServiceError } from '../base/errors.ts';
import { majority } from '../base/quorum.ts';
import type { Command, CommandOf } from '../wire/catalog-api.ts';
import type { Tables } from './tables.ts';

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
