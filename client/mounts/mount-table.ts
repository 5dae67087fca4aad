import { readdir, readFile, readlink, realpath } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';

/** Mounts, and the processes that use them, as the kernel shows them in /proc. */

export interface MountEntry {
  readonly directory: string;
  /** The kernel's number of the file system, `0:51`: the same wherever it is mounted. */
  readonly device: string;
  /** Of this mount, not of the file system: `ro,nosuid,nodev`. */
  readonly options: string;
  readonly type: string;
  readonly source: string;
}

/** @returns the topmost mount whose root is exactly `directory`, or null */
export async function mountAt(directory: string): Promise<MountEntry | null> {
  const table = await readFile('/proc/self/mountinfo', 'utf8');
  return findMount(table, directory);
}

export function findMount(table: string, directory: string): MountEntry | null {
  return parseMounts(table).findLast((mount) => mount.directory === directory) ?? null;
}

/** @returns the mounts of a table in the form of /proc/PID/mountinfo, each after those that it covers */
export function parseMounts(table: string): MountEntry[] {
  return table.split('\n').flatMap((line) => {
    // See proc(5): the fields before " - " vary in number, those after it do not.
    const [before, after] = line.split(' - ');
    if (before === undefined || after === undefined) return [];
    const [, , device = '', , directory = '', options = ''] = before.split(' ');
    const [type = '', source = ''] = after.split(' ');
    return [{ directory: unescapeOctal(directory), device, options, type, source: unescapeOctal(source) }];
  });
}

/** Decodes a field of the mount table, in which the kernel writes blanks and backslashes in octal. */
function unescapeOctal(text: string): string {
  return text.replaceAll(/\\([0-7]{3})/g, (_, octal: string) =>
    String.fromCharCode(Number.parseInt(octal, 8)),
  );
}

/** @returns the absolute path without symbolic links; makes no call to the directory, which may be a dead mount */
export async function canonical(directory: string): Promise<string> {
  const absolute = resolve(directory);
  if (absolute === '/') return absolute;
  return join(await realpath(dirname(absolute)), basename(absolute));
}

export interface ProcessEntry {
  readonly pid: number;
  readonly argv: readonly string[];
}

/** A word of the command line of each mount's process; the directory is the last one. */
export const MOUNT_DAEMON = 'mount-daemon';

/** @returns whether it is the process of a mount: of any, or of the one on `directory` */
export function isMountDaemon({ argv }: ProcessEntry, directory = argv.at(-1)): boolean {
  return argv.includes(MOUNT_DAEMON) && argv.at(-1) === directory;
}

export async function processes(): Promise<ProcessEntry[]> {
  const found: ProcessEntry[] = [];
  for (const name of await readdir('/proc')) {
    if (!/^[0-9]+$/.test(name)) continue;
    const text = await readFile(`/proc/${name}/cmdline`, 'utf8').catch(nullIfUnreadable);
    if (text === null || text === '') continue;
    found.push({ pid: Number(name), argv: text.replace(/\0$/, '').split('\0') });
  }
  return found;
}

export interface MountUser extends ProcessEntry {
  readonly use: string;
}

/** @returns the visible processes that work in `directory`, or have files in it open or mapped */
export async function usersOf(directory: string): Promise<MountUser[]> {
  const inside = (path: string | null) =>
    path !== null && (path === directory || path.startsWith(`${directory}/`));
  const users: MountUser[] = [];
  for (const entry of await processes()) {
    const use = await useOf(entry.pid, inside);
    if (use !== null) users.push({ ...entry, use });
  }
  return users;
}

/** @returns how a process uses a directory, by links and tables of the kernel: the mount itself might never answer */
async function useOf(pid: number, inside: (path: string | null) => boolean): Promise<string | null> {
  const cwd = await readlink(`/proc/${pid}/cwd`).catch(nullIfUnreadable);
  if (inside(cwd)) return `its working directory is ${cwd}`;
  const root = await readlink(`/proc/${pid}/root`).catch(nullIfUnreadable);
  if (inside(root)) return `its root directory is ${root}`;
  for (const fd of (await readdir(`/proc/${pid}/fd`).catch(nullIfUnreadable)) ?? []) {
    const path = await readlink(`/proc/${pid}/fd/${fd}`).catch(nullIfUnreadable);
    if (inside(path)) return `${path} is open`;
  }
  const maps = (await readFile(`/proc/${pid}/maps`, 'utf8').catch(nullIfUnreadable)) ?? '';
  for (const line of maps.split('\n')) {
    // Address, permissions, offset, device, inode; then the path, if there is one.
    const path = /^(?:\S+\s+){5}(\/.*)$/.exec(line)?.[1] ?? null;
    if (inside(path)) return `${path} is mapped`;
  }
  return null;
}

export async function mountsBelow(directory: string): Promise<MountEntry[]> {
  const prefix = directory === '/' ? '/' : `${directory}/`;
  return parseMounts(await readFile('/proc/self/mountinfo', 'utf8')).filter((mount) =>
    mount.directory.startsWith(prefix),
  );
}

export async function volumeMounts(): Promise<MountEntry[]> {
  return parseMounts(await readFile('/proc/self/mountinfo', 'utf8')).filter(
    ({ type }) => type === 'fuse.leasehold',
  );
}

export interface MountHolder {
  /** The namespace, as the kernel names it: `mnt:[4026531841]`. */
  readonly namespace: string;
  readonly directory: string;
  readonly isHere: boolean;
  readonly processes: readonly ProcessEntry[];
}

/** @returns where a file system is mounted, in all visible namespaces. The kernel reuses numbers of unmounted ones. */
export async function holdersOf(device: string): Promise<MountHolder[]> {
  const own = await readlink('/proc/self/ns/mnt');
  const members = new Map<string, ProcessEntry[]>();
  for (const entry of await processes()) {
    const namespace = await readlink(`/proc/${entry.pid}/ns/mnt`).catch(nullIfUnreadable);
    if (namespace === null) continue;
    const known = members.get(namespace);
    if (known === undefined) members.set(namespace, [entry]);
    else known.push(entry);
  }
  const holders: MountHolder[] = [];
  for (const [namespace, entries] of members) {
    for (const mount of await mountsOf(entries)) {
      if (mount.device !== device) continue;
      const { directory } = mount;
      holders.push({ namespace, directory, isHere: namespace === own, processes: entries });
    }
  }
  return holders;
}

/** @returns those of `found` that are in `before`, too: elsewhere the device number belongs to a newer file system */
export function stillMounted(found: readonly MountHolder[], before: readonly MountHolder[]): MountHolder[] {
  return found.filter(({ namespace, directory }) =>
    before.some((holder) => holder.namespace === namespace && holder.directory === directory),
  );
}

async function mountsOf(entries: readonly ProcessEntry[]): Promise<MountEntry[]> {
  for (const { pid } of entries) {
    const table = await readFile(`/proc/${pid}/mountinfo`, 'utf8').catch(nullIfUnreadable);
    if (table !== null) return parseMounts(table);
  }
  return [];
}

/** @returns null for an error of a process that has ended (EINVAL: a zombie) or is of another user; throws others */
function nullIfUnreadable(error: unknown): null {
  const code = error instanceof Error && 'code' in error ? error.code : null;
  if (code === 'ENOENT' || code === 'ESRCH' || code === 'EACCES' || code === 'EPERM' || code === 'EINVAL')
    return null;
  throw error;
}
