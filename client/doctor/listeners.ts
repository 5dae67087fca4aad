import { readdir, readFile, readlink } from 'node:fs/promises';
import { processes } from '../mounts/mount-table.ts';
import { isSystemError } from '../terminal/failure.ts';

/** A process that listens on a TCP port of this machine; `pid` null for processes of other users. */
export interface Listener {
  readonly pid: number | null;
  readonly argv: readonly string[];
}

/** State LISTEN in the kernel's tables; see proc_net_tcp in the kernel's documentation. */
const LISTENS = '0A';

export async function listenersOn(port: number): Promise<Listener[]> {
  const wanted = port.toString(16).toUpperCase().padStart(4, '0');
  const sockets = new Set<string>();
  for (const table of ['/proc/net/tcp', '/proc/net/tcp6']) {
    const text = (await readFile(table, 'utf8').catch(nullIfUnreadable)) ?? '';
    for (const line of text.split('\n').slice(1)) {
      const fields = line.trim().split(/\s+/);
      const [, local = '', , state] = fields;
      if (state === LISTENS && local.endsWith(`:${wanted}`)) sockets.add(`socket:[${fields[9]}]`);
    }
  }
  if (sockets.size === 0) return [];
  const found: Listener[] = [];
  for (const { pid, argv } of await processes()) {
    for (const fd of (await readdir(`/proc/${pid}/fd`).catch(nullIfUnreadable)) ?? []) {
      const target = await readlink(`/proc/${pid}/fd/${fd}`).catch(nullIfUnreadable);
      if (target === null || !sockets.has(target)) continue;
      found.push({ pid, argv });
      break;
    }
  }
  return found.length > 0 ? found : [{ pid: null, argv: [] }];
}

function nullIfUnreadable(error: unknown): null {
  if (isSystemError(error) && ['ENOENT', 'ESRCH', 'EACCES', 'EPERM'].includes(error.code ?? '')) return null;
  throw error;
}
