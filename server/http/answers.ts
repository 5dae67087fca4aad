import type { FastifyReply } from 'fastify';
import type { FileId } from '../../base/ids.ts';
import { type FileState, HEADER_EPOCH, HEADER_PRIMARY, HEADER_ROLE } from '../../wire/http-api.ts';
import type { Gateway } from '../routing/gateway.ts';

/** Adds headers: the file's primary and epoch by `state`, or as known here, and this server's role. */
export function setFileHeaders(
  reply: FastifyReply,
  gateway: Gateway,
  file: FileId,
  state: Pick<FileState, 'primary' | 'epoch'> | null,
): void {
  const here = gateway.router.knownPrimary(file);
  const primary = state?.primary ?? here.primary;
  const isPrimary = primary === gateway.services.status.id;
  // The role here may be older than the answer, and must not contradict it.
  const role = isPrimary ? 'primary' : here.role === 'primary' ? 'backup' : here.role;
  if (primary !== null) reply.header(HEADER_PRIMARY, primary);
  reply.header(HEADER_EPOCH, String(state?.epoch ?? here.epoch));
  reply.header(HEADER_ROLE, role);
}

export function addVary(reply: FastifyReply, name: string): void {
  const known = reply.getHeader('vary');
  reply.header('vary', known === undefined ? name : `${known}, ${name}`);
}

export function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
}
