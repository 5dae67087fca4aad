import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** mount(8), umount(8) and the abort of a connection. None of these calls into the mount, which may not answer. */

const FILE_SYSTEM_TYPE = 'fuse.leasehold';
const CONNECTIONS = '/sys/fs/fuse/connections';
const OUTPUT_BYTES_MAX = 4096;

/**
 * Mounts the device for all users; the kernel checks permissions.
 *
 * @param options others for the kernel, as `ro`
 * @param mountsBefore so many empty file systems are mounted just before, and removed afterwards (`withDeviceNumber`)
 */
export async function mountDevice(
  fd: number,
  mountpoint: string,
  source: string,
  options: readonly string[],
  mountsBefore = 0,
): Promise<void> {
  const kernelOptions = [
    'fd=3',
    'rootmode=40000',
    'user_id=0',
    'group_id=0',
    'default_permissions',
    ...options,
  ].join(',');
  const failure =
    mountsBefore === 0
      ? await run('mount', ['-i', '-t', FILE_SYSTEM_TYPE, '-o', kernelOptions, source, mountpoint], fd)
      : await mountAfterEmpty(fd, [source, mountpoint, FILE_SYSTEM_TYPE, kernelOptions], mountsBefore);
  if (failure !== null) throw new Error(`Cannot mount on "${mountpoint}": ${failure}`);
}

/** One program mounts all of them, one after the other. @param fields of the mount's line in fstab(5) */
async function mountAfterEmpty(fd: number, fields: readonly string[], count: number): Promise<string | null> {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-numbers-'));
  const empty = Array.from({ length: count }, (_, index) => join(folder, String(index)));
  const table = join(folder, 'fstab');
  const lines = [...empty.map((directory) => ['leasehold-number', directory, 'ramfs', 'defaults']), fields];
  writeFileSync(table, lines.map((line) => `${line.map(tableField).join(' ')} 0 0\n`).join(''));
  for (const directory of empty) mkdirSync(directory);
  try {
    return await run('mount', ['-i', '-a', '-T', table], fd);
  } finally {
    await run('umount', ['-i', '-c', ...empty]);
    rmSync(folder, { recursive: true });
  }
}

/** As getmntent(3) reads it. */
function tableField(text: string): string {
  return text.replace(/[\s\\#]/g, (character) => `\\${character.charCodeAt(0).toString(8).padStart(3, '0')}`);
}

export function unmountDirectory(mountpoint: string, lazily: boolean): Promise<string | null> {
  return run('umount', ['-i', '-c', ...(lazily ? ['-l'] : []), mountpoint]);
}

/** Fails all calls in the kernel. Needs neither the mount's directory nor the event loop, which may have ended. */
export function abortConnection(device: string): void {
  const connection = device.split(':')[1] ?? '';
  try {
    writeFileSync(join(CONNECTIONS, connection, 'abort'), '1');
    return;
  } catch (error) {
    // fusectl is not mounted everywhere.
    if (!(error instanceof Error && 'code' in error && error.code === 'ENOENT')) throw error;
  }
  const directory = mkdtempSync(join(tmpdir(), 'leasehold-connections-'));
  try {
    spawnSync('mount', ['-i', '-t', 'fusectl', 'fusectl', directory]);
    writeFileSync(join(directory, connection, 'abort'), '1');
  } catch (error) {
    // The connection has ended already.
    if (!(error instanceof Error && 'code' in error && error.code === 'ENOENT')) throw error;
  } finally {
    spawnSync('umount', ['-i', directory]);
    rmdirSync(directory);
  }
}

async function run(program: string, argv: readonly string[], fd?: number): Promise<string | null> {
  const child = spawn(program, argv, { cwd: '/', stdio: ['ignore', 'pipe', 'pipe', fd ?? 'ignore'] });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('data', (chunk: Buffer) => {
      if (output.length < OUTPUT_BYTES_MAX) output += chunk.toString();
    });
  }
  const [code, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null];
  if (code === 0) return null;
  return output.trim() || `${program} ended with ${signal ?? `exit code ${code}`}`;
}
