import { constants } from 'node:fs';
import {
  chmod,
  type FileHandle,
  lstat,
  mkdir,
  mkdtemp,
  open,
  readdir,
  rename,
  rm,
  stat,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { systemWorld } from '../../world/system-world.ts';
import { isSystemError } from '../terminal/failure.ts';
import { CONTROL_SUFFIX, isListening } from './mount-control.ts';
import { isAlive } from './process-state.ts';

/** Set for the process of a mount that bounds its own log, and removes it at its end. */
export const OWN_LOG_VARIABLE = 'LEASEHOLD_MOUNT_LOG_OWN';

const ENDED_KEPT = 10;
/** Named by the pid of the process that writes it; randomly before that is known. */
const NAME = /^mount-.*-(?:(\d{1,8})|[0-9a-f]{12})\.log$/;
const CONTROL_NAME = /^mount-.*-(\d{1,8})\.control$/;
/** A log without a pid in its name after this time is of a mount that failed to start. */
const START_MS_MAX = 3_600_000;
const OTHERS_WRITE = 0o022;
const SOCKET_NAME_CHARS_MAX = 20;

/** Creates a log in a folder that only this user can change: others can neither read it nor put a link there. */
export async function createMountLog(
  directory: string,
  env: NodeJS.ProcessEnv = process.env,
): Promise<{ readonly path: string; readonly file: FileHandle }> {
  const folder = await ownFolder(foldersOf(env));
  await removeEndedLogs(folder, await removeEndedSockets(folder));
  const path = join(folder, `mount-${basename(directory)}-${systemWorld.randomBytes(6).toString('hex')}.log`);
  const flags =
    constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
  return { path, file: await open(path, flags, 0o600) };
}

/** @returns where the process of a mount can listen, so that only this user and root can send it requests */
export async function controlSocketPath(directory: string, pid: number): Promise<string> {
  const folder = await ownFolder(foldersOf(process.env));
  await removeEndedSockets(folder);
  // The kernel takes paths of 107 bytes.
  return join(folder, `mount-${basename(directory).slice(0, SOCKET_NAME_CHARS_MAX)}-${pid}${CONTROL_SUFFIX}`);
}

/**
 * Mounts in other containers may use the folder too: here their processes have other pids, but their sockets answer.
 * @returns the pids of mounts that run, each as its own container has it
 */
async function removeEndedSockets(folder: string): Promise<ReadonlySet<string>> {
  const running = new Set<string>();
  for (const name of await readdir(folder)) {
    const [, pid] = CONTROL_NAME.exec(name) ?? [];
    if (pid === undefined) continue;
    const path = join(folder, name);
    if (isAlive(Number(pid)) || (await isListening(path))) running.add(pid);
    else await rm(path, { force: true });
  }
  return running;
}

/** Renames a log after the process that writes it. @returns its path from then on */
export async function renameMountLog(path: string, directory: string, pid: number): Promise<string> {
  const named = join(dirname(path), `mount-${basename(directory)}-${pid}.log`);
  await rename(path, named);
  return named;
}

function foldersOf({ XDG_RUNTIME_DIR: session = '' }: NodeJS.ProcessEnv): string[] {
  const uid = process.getuid?.() ?? 0;
  if (uid === 0) return ['/run/leasehold', '/var/log/leasehold'];
  return [...(session === '' ? [] : [join(session, 'leasehold')]), join(tmpdir(), `leasehold-${uid}`)];
}

/** @returns the first of the folders that only this user can change, or else a new one */
export async function ownFolder(candidates: readonly string[]): Promise<string> {
  const uid = process.getuid?.() ?? 0;
  for (const folder of candidates) if (await isOwnFolder(folder, uid)) return folder;
  return mkdtemp(join(tmpdir(), 'leasehold-mount-'));
}

/** Creates the folder if it is missing. @returns whether only this user, or root, can change what is in it */
async function isOwnFolder(folder: string, uid: number): Promise<boolean> {
  try {
    await mkdir(folder, { mode: 0o700 }).catch((error: unknown) => {
      if (!isSystemError(error) || error.code !== 'EEXIST') throw error;
    });
    const found = await lstat(folder);
    if (!found.isDirectory() || found.uid !== uid) return false;
    if ((found.mode & OTHERS_WRITE) !== 0) await chmod(folder, 0o700);
    return true;
  } catch (error) {
    if (isSystemError(error)) return false;
    throw error;
  }
}

async function removeEndedLogs(folder: string, running: ReadonlySet<string>): Promise<void> {
  const ended: { readonly path: string; readonly modifiedMs: number }[] = [];
  for (const name of await readdir(folder)) {
    const match = NAME.exec(name);
    if (match === null) continue;
    const [, pid] = match;
    if (pid !== undefined && (running.has(pid) || isAlive(Number(pid)))) continue;
    const path = join(folder, name);
    const modifiedMs = (await stat(path).catch(() => null))?.mtimeMs ?? Number.POSITIVE_INFINITY;
    if (pid !== undefined || modifiedMs < systemWorld.wallMs() - START_MS_MAX)
      ended.push({ path, modifiedMs });
  }
  ended.sort((a, b) => b.modifiedMs - a.modifiedMs);
  for (const { path } of ended.slice(ENDED_KEPT)) {
    await rm(path, { force: true });
    await rm(`${path}.1`, { force: true });
  }
}
