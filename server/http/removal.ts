import type { FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { Command } from '../../wire/catalog-api.ts';

/** What commands say of a file that loses its last name, in a volume with a trash. */
export interface Removal {
  readonly by?: string;
  readonly trash?: false;
}

/** @returns who asks, as far as he had to say so, and whether `?trash=false` says that nothing is to be kept */
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

/** A command that takes a name away says who wants that: who he is as he had to prove it, before what he says himself. */
export function signedCommand(request: FastifyRequest, command: Command): Command {
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
