import { once } from 'node:events';
import { readdir, readFile, readlink } from 'node:fs/promises';
import { createConnection } from 'node:net';
import { isSystemError } from '../terminal/failure.ts';

/** A request to the process of a mount through its socket: one line of JSON, answered by another one. */
export interface ControlRequest {
  readonly command: 'remount';
  readonly mode: 'ro' | 'rw';
  readonly force: boolean;
}

export type ControlAnswer =
  | { readonly kind: 'done' }
  /** Nothing has changed. `not-stored`: something that was written has not reached the cluster. */
  | { readonly kind: 'busy' | 'not-allowed' | 'not-stored' | 'malformed'; readonly message: string };

export const CONTROL_SUFFIX = '.control';
export const CONTROL_LINE_CHARS_MAX = 16_384;

/** @returns the control socket of a mount's process; null if it has none, or it is not visible */
export async function controlSocketOf(pid: number): Promise<string | null> {
  const inodes = new Set<string>();
  for (const fd of await readdir(`/proc/${pid}/fd`)) {
    const target = await readlink(`/proc/${pid}/fd/${fd}`).catch(() => '');
    const [, inode] = /^socket:\[(\d+)\]$/.exec(target) ?? [];
    if (inode !== undefined) inodes.add(inode);
  }
  // Num, RefCount, Protocol, Flags, Type, St, Inode, Path: see proc_pid_net(5).
  for (const line of (await readFile(`/proc/${pid}/net/unix`, 'utf8')).split('\n')) {
    const [, inode = '', path = ''] = /^(?:\S+\s+){6}(\d+)\s+(.+)$/.exec(line) ?? [];
    if (inodes.has(inode) && path.endsWith(CONTROL_SUFFIX)) return path;
  }
  return null;
}

/** @returns whether a process listens at the socket, in whatever container it runs; also if that cannot be found out */
export async function isListening(socket: string): Promise<boolean> {
  const connection = createConnection(socket);
  try {
    await once(connection, 'connect');
    return true;
  } catch (error) {
    if (!isSystemError(error)) throw error;
    return error.code !== 'ECONNREFUSED' && error.code !== 'ENOENT';
  } finally {
    connection.destroy();
  }
}

/** Sends a request to the control socket of a mount. @throws Error if its process does not answer in time */
export async function requestFromMount(
  socket: string,
  request: ControlRequest,
  timeoutMs: number,
): Promise<ControlAnswer> {
  const connection = createConnection(socket);
  connection.setTimeout(timeoutMs, () =>
    connection.destroy(new Error(`it did not answer within ${timeoutMs} ms`)),
  );
  try {
    await once(connection, 'connect');
    connection.write(`${JSON.stringify(request)}\n`);
    let text = '';
    for await (const chunk of connection.setEncoding('utf8')) text += chunk;
    return JSON.parse(text) as ControlAnswer;
  } finally {
    connection.destroy();
  }
}
