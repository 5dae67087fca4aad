import { chmod, mkdir, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { isListening } from '../mounts/mount-control.ts';
import { preconditionFailure, usageFailure } from '../terminal/failure.ts';

const SCHEME = 'unix://';
const SOCKET_MODE = 0o600;
const FOLDER_MODE = 0o750;
/** The kernel's limit, with its NUL. */
const PATH_BYTES_MAX = 107;

/** @returns the path of `unix:///csi/csi.sock` @throws CommandFailure for a network: callers are not authenticated */
export function socketPath(endpoint: string): string {
  const path = endpoint.startsWith(SCHEME) ? endpoint.slice(SCHEME.length) : '';
  if (!path.startsWith('/') || path.includes('\0'))
    throw usageFailure(
      `Cannot listen at "${endpoint}": it is not a socket of this machine`,
      'write it as unix:///csi/csi.sock',
    );
  if (Buffer.byteLength(path) > PATH_BYTES_MAX)
    throw usageFailure(`Cannot listen at "${endpoint}": the path is longer than ${PATH_BYTES_MAX} bytes`);
  return path;
}

/** Listens at a socket file that only this user can open, in place of one that an ended process has left. */
export async function listenAt(path: string, listen: (path: string) => Promise<void>): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: FOLDER_MODE });
  if (await isListening(path))
    throw preconditionFailure(`Cannot listen at ${path}: another process does`, 'end it first');
  await rm(path, { force: true });
  const before = process.umask(0o177);
  try {
    await listen(path);
  } finally {
    process.umask(before);
  }
  await chmod(path, SOCKET_MODE);
}
