import type { FastifyRequest } from 'fastify';
import type { ServerId } from '../../base/ids.ts';
import type { Grant } from '../../wire/access.ts';
import { certifiedBy } from './certified.ts';
import type { TokenBook } from './token-book.ts';

/** Who a request comes from. */
export type Principal =
  /** Another server, which has asked its own client who he is. */
  | { readonly kind: 'server'; readonly id: ServerId }
  | { readonly kind: 'client'; readonly grant: Grant }
  /** Nobody is asked here. */
  | { readonly kind: 'anyone' };

const BEARER = /^Bearer +([^\s]+) *$/i;

/**
 * @param tokens null where nobody is asked
 * @param nowMs since the epoch, by which certificates and tokens have ended
 * @returns null for one who is asked, and does not say who he is, or says it wrongly
 */
export function principalOf(
  request: FastifyRequest,
  tokens: TokenBook | null,
  nowMs: number,
): Principal | null {
  const identity = certifiedBy(request.raw.socket, nowMs)?.identity;
  if (identity?.kind === 'server') return { kind: 'server', id: identity.id };
  if (tokens === null) return { kind: 'anyone' };
  const { authorization } = request.headers;
  // Whoever shows a token means it, also where he has a certificate.
  if (authorization !== undefined) {
    const token = BEARER.exec(authorization)?.[1];
    const grant = token === undefined ? null : tokens.grantOf(token, nowMs);
    return grant === null ? null : { kind: 'client', grant };
  }
  if (identity?.kind !== 'client') return null;
  const { name, role, volumes } = identity;
  // Set apart from a token of the same name, for capabilities and for the log.
  return { kind: 'client', grant: { name: `certificate:${name}`, role, volumes } };
}

/** @returns how logs call it */
export function principalName(principal: Principal | null): string {
  if (principal === null) return 'nobody known';
  switch (principal.kind) {
    case 'server':
      return `server:${principal.id}`;
    case 'client':
      return principal.grant.name;
    case 'anyone':
      return 'anyone';
  }
}
