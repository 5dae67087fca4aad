import type { FastifyRequest } from 'fastify';
import type { ServerId } from '../../base/ids.ts';
import type { Grant } from '../../wire/access.ts';
import { certifiedBy } from './certified.ts';
import type { TokenStore } from './token-file.ts';

export type Principal =
  /** Another server, which has authenticated its client. */
  | { readonly kind: 'server'; readonly id: ServerId }
  | { readonly kind: 'client'; readonly grant: Grant }
  /** The server authenticates no client. */
  | { readonly kind: 'anyone' };

const BEARER = /^Bearer +([^\s]+) *$/i;

/** Returns who sent the request; null without valid credentials. `tokens`: null if clients are not authenticated. */
export function principalOf(
  request: FastifyRequest,
  tokens: TokenStore | null,
  nowMs: number,
): Principal | null {
  const identity = certifiedBy(request.raw.socket, nowMs)?.identity;
  if (identity?.kind === 'server') return { kind: 'server', id: identity.id };
  if (tokens === null) return { kind: 'anyone' };
  const { authorization } = request.headers;
  // A token has precedence over a certificate.
  if (authorization !== undefined) {
    const token = BEARER.exec(authorization)?.[1];
    const grant = token === undefined ? null : tokens.grantOf(token, nowMs);
    return grant === null ? null : { kind: 'client', grant };
  }
  if (identity?.kind !== 'client') return null;
  const { name, role, volumes } = identity;
  // Distinct from a token of the same name, in capabilities and logs.
  return { kind: 'client', grant: { name: `certificate:${name}`, role, volumes } };
}

export function principalName(principal: Principal | null): string {
  if (principal === null) return 'unauthenticated';
  switch (principal.kind) {
    case 'server':
      return `server:${principal.id}`;
    case 'client':
      return principal.grant.name;
    case 'anyone':
      return 'anyone';
  }
}
