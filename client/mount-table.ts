import { readdir, readFile, readlink, realpath } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';

/** What the kernel knows of mounts and of the processes that use them, read from /proc. */

export interface MountEntry {
  readonly directory: string;
  /** Type of the file system: `fuse`, `fuse.leasehold`, `ext4` … */
  readonly type: string;
  readonly source: string;
}

/** @returns the mount whose root is exactly `directory`, the topmost one, or null */
export async function mountAt(directory: string): Promise<MountEntry | null> {
  const table = await readFile('/proc/self/mountinfo', 'utf8');
  return findMount(table, directory);
}

export function findMount(table: string, directory: string): MountEntry | null {
  let found: MountEntry | null = null;
  for (const line of table.split('\n')) {
    // See proc(5): the fields before " - " vary in number, those after it do not.
    const [before, after] = line.split(' - ');
    if (before === undefined || after === undefined) continue;
    const point = unescapeOctal(before.split(' ')[4] ?? '');
    if (point !== directory) continue;
    const [type = '', source = ''] = after.split(' ');
    found = { directory: point, type, source: unescapeOctal(source) };
  }
  return found;
}

/** The kernel writes blanks and backslashes in octal. */
function unescapeOctal(text: string): string {
  return text.replaceAll(/\\([0-7]{3})/g, (_, octal: string) =>
    String.fromCharCode(Number.parseInt(octal, 8)),
  );
}

/**
 * @returns the absolute path of `directory` without symbolic links, found without asking the directory itself,
 * which may be a mount that is dead
 */
export async function canonical(directory: string): Promise<string> {
  const absolute = resolve(directory);
  if (absolute === '/') return absolute;
  return join(await realpath(dirname(absolute)), basename(absolute));
}

export interface ProcessEntry {
  readonly pid: number;
  readonly argv: readonly string[];
}

/** @returns the processes of this machine that can be looked at */
export async function processes(): Promise<ProcessEntry[]> {
  const found: ProcessEntry[] = [];
  for (const name of await readdir('/proc')) {
    if (!/^[0-9]+$/.test(name)) continue;
    const text = await readFile(`/proc/${name}/cmdline`, 'utf8').catch(gone);
    if (text === null || text === '') continue;
    found.push({ pid: Number(name), argv: text.replace(/\0$/, '').split('\0') });
  }
  return found;
}

/** @returns the processes whose working directory or open files lie in `directory`, as far as can be seen */
export async function usersOf(directory: string): Promise<ProcessEntry[]> {
  const inside = (path: string | null) =>
    path !== null && (path === directory || path.startsWith(`${directory}/`));
  const users: ProcessEntry[] = [];
  for (const entry of await processes()) {
    if (await uses(entry.pid, inside)) users.push(entry);
  }
  return users;
}

async function uses(pid: number, inside: (path: string | null) => boolean): Promise<boolean> {
  if (inside(await readlink(`/proc/${pid}/cwd`).catch(gone))) return true;
  for (const fd of (await readdir(`/proc/${pid}/fd`).catch(gone)) ?? []) {
    if (inside(await readlink(`/proc/${pid}/fd/${fd}`).catch(gone))) return true;
  }
  return false;
}

/** Processes end while they are looked at, and those of other users cannot be looked at. */
function gone(error: unknown): null {
  const code = error instanceof Error && 'code' in error ? error.code : null;
  if (code === 'ENOENT' || code === 'ESRCH' || code === 'EACCES' || code === 'EPERM') return null;
  throw error;
}
