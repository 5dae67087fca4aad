import type { FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { Command } from '../../wire/catalog-api.ts';

/** Fields of commands that may remove a file's last name: the client, for the trash, and whether to skip the trash. */
export interface Removal {
  readonly by?: string;
  readonly trash?: false;
}

/** Returns the authenticated client, if any, and whether `?trash=false` skips the trash. */
export function removalOf(request: FastifyRequest, search: URLSearchParams): Removal {
  const { principal } = request;
  const trash = search.get('trash') ?? 'true';
  if (trash !== 'true' && trash !== 'false')
    throw new ServiceError('bad-request', '"trash" is true or false');
  return {
    ...(principal?.kind === 'client' ? { by: principal.grant.name } : {}),
    ...(trash === 'false' ? { trash: false as const } : {}),
  };
}

/** Adds the authenticated client to a command that removes a name, before what the client says of itself. */
export function commandWithRemover(request: FastifyRequest, command: Command): Command {
  switch (command.kind) {
    case 'unlink':
    case 'unlink-files':
    case 'unlink-fenced':
    case 'rename':
    case 'rename-whiteout':
    case 'replace': {
      const { principal } = request;
      if (principal?.kind !== 'client') return command;
      const { name } = principal.grant;
      return { ...command, by: command.by === undefined ? name : `${name} (${command.by})` };
    }
    default:
      return command;
  }
}
