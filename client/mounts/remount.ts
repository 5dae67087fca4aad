import { existsSync } from 'node:fs';
import { readdir, readFile, readlink } from 'node:fs/promises';
import {
  isSystemError,
  notFoundFailure,
  preconditionFailure,
  temporaryFailure,
} from '../terminal/failure.ts';
import { type ControlAnswer, controlSocketOf, requestFromMount } from './mount-control.ts';
import { isMountDaemon, mountAt, processes } from './mount-table.ts';
import { run } from './run-program.ts';
import { canonicalOrFail } from './unmount.ts';

const ANSWER_TIMEOUT_MS = 60_000;
/** O_WRONLY and O_RDWR, of the flags in `/proc/PID/fdinfo/FD`. */
const WRITES = 0o3;

export interface RemountOptions {
  readonly force?: boolean;
  readonly timeoutMs?: number;
}

/**
 * Makes a mount read-only, once all that was written is stored, or read-write: in its process, and in the kernel's
 * table if this process may change that.
 * @returns a message if the kernel's table does not show the mode, else null
 * @throws CommandFailure if nothing has changed
 */
export async function remountDirectory(
  directoryText: string,
  mode: 'ro' | 'rw',
  { force = false, timeoutMs = ANSWER_TIMEOUT_MS }: RemountOptions = {},
): Promise<string | null> {
  const directory = await canonicalOrFail(directoryText);
  const mounted = await mountAt(directory);
  const cannot = `Cannot remount "${directory}"`;
  if (mounted === null) {
    if (!existsSync(directory)) throw notFoundFailure(`${cannot}: there is no such directory`);
    throw preconditionFailure(`${cannot}: nothing is mounted there`);
  }
  if (mounted.type !== 'fuse.leasehold')
    throw preconditionFailure(`${cannot}: a file system of type ${mounted.type} is there, not a volume`);
  const socket = await socketOf(directory);
  if (socket === null)
    throw preconditionFailure(
      `${cannot}: its process has no control socket that this user may use`,
      'run it as the user of the mount or as root; unmount a mount of an earlier release, and mount it again',
    );
  const answer = await requestFromMount(socket, { command: 'remount', mode, force }, timeoutMs).catch(
    (error: unknown): never => {
      throw temporaryFailure(
        `${cannot}: the outcome is unknown: ${error instanceof Error ? error.message : error}`,
        'see its log and "leasehold status", then try again',
      );
    },
  );
  if (answer.kind !== 'done') throw await refusalOf(cannot, directory, answer);
  return process.getuid?.() === 0 ? remountInKernel(directory, mode) : null;
}

async function socketOf(directory: string): Promise<string | null> {
  const found = (await processes()).filter((entry) => isMountDaemon(entry, directory));
  for (const { pid } of found) {
    try {
      const socket = await controlSocketOf(pid);
      if (socket !== null) return socket;
    } catch (error) {
      // It is of another user, or has ended.
      if (!isSystemError(error)) throw error;
    }
  }
  return null;
}

async function refusalOf(
  cannot: string,
  directory: string,
  answer: Exclude<ControlAnswer, { readonly kind: 'done' }>,
): Promise<Error> {
  switch (answer.kind) {
    case 'busy': {
      const who = (await writersOf(directory)).map((writer) => `\n  ${writer}`).join('');
      return preconditionFailure(
        `${cannot}: ${answer.message}${who}`,
        'end these processes, or use --force, which makes their writes fail',
      );
    }
    case 'not-stored':
      return temporaryFailure(
        `${cannot}: some written data could not be stored: ${answer.message}`,
        'its log names the files; the mount is still read-write',
      );
    default:
      return preconditionFailure(`${cannot}: ${answer.message}`);
  }
}

/** Changes the kernel's table, for `findmnt` and programs that check it: the mount itself has changed already. */
async function remountInKernel(directory: string, mode: 'ro' | 'rw'): Promise<string | null> {
  const result = await run('mount', ['-i', '-o', `remount,${mode}`, directory]);
  if (result.kind === 'done') return null;
  const why = result.kind === 'failed' ? result.output : 'the program mount is not installed';
  return `"${directory}" is ${mode === 'ro' ? 'read-only' : 'read-write'}, but the kernel's table of mounts does not show it: ${why}`;
}

async function writersOf(directory: string): Promise<string[]> {
  const found: string[] = [];
  for (const { pid, argv } of await processes()) {
    for (const fd of await readdir(`/proc/${pid}/fd`).catch(() => [])) {
      const path = await readlink(`/proc/${pid}/fd/${fd}`).catch(() => '');
      if (!path.startsWith(`${directory}/`)) continue;
      const info = await readFile(`/proc/${pid}/fdinfo/${fd}`, 'utf8').catch(() => '');
      const [, flags = '0'] = /^flags:\s*([0-7]+)$/m.exec(info) ?? [];
      if ((Number.parseInt(flags, 8) & WRITES) === 0) continue;
      found.push(
        `process ${pid} (${argv[0] ?? ''}): ${path} is open for writing`.replaceAll(/\p{Cc}/gu, '?'),
      );
    }
  }
  return found;
}
