import type { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { ServerId } from '../../base/ids.ts';
import { type CertifiedIdentity, identityOfUris, urisOfNames } from '../../wire/access.ts';
import { serialText } from '../../wire/tokens.ts';

/** Identity that a certificate proves, and its end (wall clock, in milliseconds). */
export interface Certified {
  readonly identity: CertifiedIdentity;
  readonly untilMs: number;
  readonly serial: string;
}

/** Cached per connection, because every request asks. */
const known = new WeakMap<Socket, Certified | null>();

/** Returns for whom a certificate was issued; null if it names no member of a cluster. */
export function identityOf(certificate: X509Certificate): CertifiedIdentity | null {
  return identityOfUris(urisOfNames(certificate.subjectAltName ?? ''));
}

/** Returns the identity that the peer's certificate proves; null without one that is valid at `wallMs`. */
export function certifiedBy(socket: Socket, wallMs: number): Certified | null {
  let certified = known.get(socket);
  if (certified === undefined) {
    certified = examine(socket);
    known.set(socket, certified);
  }
  return certified !== null && certified.untilMs > wallMs ? certified : null;
}

/** Returns the server whose certificate the peer has shown; null if it is no server. */
export function certifiedServer(socket: Socket, wallMs: number): ServerId | null {
  const identity = certifiedBy(socket, wallMs)?.identity;
  return identity?.kind === 'server' ? identity.id : null;
}

function examine(socket: Socket): Certified | null {
  if (!(socket instanceof TLSSocket) || !socket.authorized) return null;
  const certificate = socket.getPeerX509Certificate();
  const identity = certificate === undefined ? null : identityOf(certificate);
  if (certificate === undefined || identity === null) return null;
  return {
    identity,
    untilMs: certificate.validToDate.getTime(),
    serial: serialText(certificate.serialNumber),
  };
}
