/** Mount points of a node, by the kernel's table and by programs that can be killed: a dead mount may hang a call. */
import { mkdir, readFile, rmdir } from 'node:fs/promises';
import { type MountEntry, mountAt, parseMounts } from '../mounts/mount-table.ts';
import { run } from '../mounts/run-program.ts';
import { detach } from '../mounts/unmount.ts';
import { generalFailure, isSystemError } from '../terminal/failure.ts';

const PROBE_TIMEOUT_MS = 5_000;
const DIRECTORY_MODE = 0o750;
/** Of replaced mounts, more do not lie upon each other at one place. */
const LAYERS_MAX = 1_000;
const DEAD = /Transport endpoint is not connected|Software caused connection abort/;

export interface FileSystemSpace {
  readonly blockBytes: number;
  readonly blocks: number;
  readonly freeBlocks: number;
  readonly availableBlocks: number;
  readonly inodes: number;
  readonly freeInodes: number;
}

export type Probe =
  | { readonly kind: 'missing' }
  /** The process of the mount has ended. */
  | { readonly kind: 'dead' }
  /** It does not answer, such as a stopped process, or a mount that waits for the cluster. */
  | { readonly kind: 'silent'; readonly why: string }
  | { readonly kind: 'answers'; readonly space: FileSystemSpace };

/** Queries the file system at a directory. */
export async function probe(directory: string): Promise<Probe> {
  const format = '%S %b %f %a %c %d';
  const result = await run(
    'env',
    ['LC_ALL=C', 'stat', '-f', '-c', format, '--', directory],
    PROBE_TIMEOUT_MS,
  );
  if (result.kind === 'missing')
    throw generalFailure('Cannot query a mount: the program env is not installed');
  const { kind, output } = result;
  if (kind === 'done') {
    const [blockBytes = 0, blocks = 0, freeBlocks = 0, availableBlocks = 0, inodes = 0, freeInodes = 0] =
      output.split(' ').map(Number);
    return {
      kind: 'answers',
      space: { blockBytes, blocks, freeBlocks, availableBlocks, inodes, freeInodes },
    };
  }
  if (DEAD.test(output)) return { kind: 'dead' };
  return /No such file or directory/.test(output) ? { kind: 'missing' } : { kind: 'silent', why: output };
}

export function isVolumeMount({ type }: MountEntry): boolean {
  return type === 'fuse.leasehold';
}

export interface BoundMount extends MountEntry {
  readonly readOnly: boolean;
}

/** @returns the topmost mount at exactly this directory, with the mode of this mount point */
export async function boundAt(directory: string): Promise<BoundMount | null> {
  const table = await readFile('/proc/self/mountinfo', 'utf8');
  const mount = parseMounts(table).findLast((one) => one.directory === directory);
  return mount === undefined ? null : { ...mount, readOnly: mount.options.split(',').includes('ro') };
}

export async function makeDirectory(directory: string): Promise<void> {
  await mkdir(directory, { recursive: true, mode: DIRECTORY_MODE });
}

/**
 * Mounts what is at `from` also at `to`, on top of what may be mounted there, and read-only if wanted.
 *
 * That is prepared at `via`, a directory that no pod sees. mount(8) makes a mount read-only after it has made it: a pod
 * that runs could write meanwhile. And what is mounted at several places at once is one to the kernel: a later mount on
 * top at one place would appear at all of them, in its mode. So the mount at `via` belongs to no others.
 */
export async function bind(from: string, to: string, via: string, readOnly: boolean): Promise<void> {
  // Of a plugin that was killed.
  await unmountAll(via, () => true);
  await makeDirectory(via);
  try {
    await mountBound(
      from,
      via,
      readOnly ? ['--make-private', '-o', 'bind,ro'] : ['--make-private', '-o', 'bind'],
    );
    await mountBound(via, to, ['-o', 'bind']);
  } finally {
    await unmountAll(via, () => true);
    await removeDirectory(via);
  }
}

async function mountBound(from: string, to: string, options: readonly string[]): Promise<void> {
  // Paths are used as they are: what is dead at `to` could not be resolved.
  const result = await run('mount', ['--no-canonicalize', ...options, from, to]);
  if (result.kind === 'done') return;
  const why = result.kind === 'failed' ? result.output : 'the program mount is not installed';
  throw generalFailure(`Cannot mount "${from}" at "${to}": ${why}`);
}

/** Removes all mounts at a directory: several lie upon each other after a replacement. */
export async function unmountAll(directory: string, isLazy: (probe: Probe) => boolean): Promise<void> {
  for (let layer = 0; layer < LAYERS_MAX; layer++) {
    if ((await mountAt(directory)) === null) return;
    await detach(directory, isLazy(await probe(directory)));
  }
  throw generalFailure(
    `Cannot unmount "${directory}": more than ${LAYERS_MAX} mounts lie upon each other there`,
  );
}

/** Removes an empty directory; never what is in it. */
export async function removeDirectory(directory: string): Promise<void> {
  try {
    await rmdir(directory);
  } catch (error) {
    if (!isSystemError(error) || error.code !== 'ENOENT') throw error;
  }
}
