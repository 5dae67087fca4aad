import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** mount(8), umount(8) and the abort of a connection. None of these calls into the mount, which may not answer. */

const FILE_SYSTEM_TYPE = 'fuse.leasehold';
const CONNECTIONS = '/sys/fs/fuse/connections';
const OUTPUT_BYTES_MAX = 4096;

/** Mounts the device for all users; the kernel checks permissions. @param options others for the kernel, as `ro` */
export async function mountDevice(
  fd: number,
  mountpoint: string,
  source: string,
  options: readonly string[],
): Promise<void> {
  const kernelOptions = [
    'fd=3',
    'rootmode=40000',
    'user_id=0',
    'group_id=0',
    'default_permissions',
    ...options,
  ];
  const argv = ['-i', '-t', FILE_SYSTEM_TYPE, '-o', kernelOptions.join(','), source, mountpoint];
  const failure = await run('mount', argv, fd);
  if (failure !== null) throw new Error(`Cannot mount on "${mountpoint}": ${failure}`);
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
