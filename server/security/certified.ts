import type { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { ServerId } from '../../base/ids.ts';
import { type CertifiedIdentity, identityOfUris, urisOfNames } from '../../wire/access.ts';
import { serialText } from '../../wire/tokens.ts';

/** Who is at the other end of a connection, and until when its certificate says so (wall clock, in milliseconds). */
export interface Certified {
  readonly identity: CertifiedIdentity;
  readonly untilMs: number;
  /** By which it is revoked. */
  readonly serial: string;
}

/** A connection keeps its certificate, and each request on it asks. */
const known = new WeakMap<Socket, Certified | null>();

/** @returns for whom a certificate was made; null where it names nobody of a cluster */
export function identityOf(certificate: X509Certificate): CertifiedIdentity | null {
  return identityOfUris(urisOfNames(certificate.subjectAltName ?? ''));
}

/**
 * @param wallMs by which certificates have ended
 * @returns who the other end has proved to be by a certificate of the cluster's authority; null where it has shown none
 */
export function certifiedBy(socket: Socket, wallMs: number): Certified | null {
  let certified = known.get(socket);
  if (certified === undefined) {
    certified = examine(socket);
    known.set(socket, certified);
  }
  return certified !== null && certified.untilMs > wallMs ? certified : null;
}

/** @returns the server that the other end has proved to be; null where it is none */
export function serverBehind(socket: Socket, wallMs: number): ServerId | null {
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
