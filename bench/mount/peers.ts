import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually } from './eventually.ts';
import { isInstalled, run } from './programs.ts';
import { Missing, type Subject } from './subject.ts';

/** The file system on which all other subjects store. */
export async function diskSubject(): Promise<Subject> {
  const directory = mkdtempSync(join(tmpdir(), 'leasehold-bench-disk-'));
  const stop = async () => rmSync(directory, { recursive: true, force: true });
  return { name: 'disk', directory, pids: () => ({}), stop };
}

/** The local disk through FUSE and a process that passes all calls on. */
export async function bindfsSubject(): Promise<Subject> {
  if (!(await isInstalled('bindfs'))) throw new Missing('bindfs is not installed');
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-bench-bindfs-'));
  const [below, directory] = [join(folder, 'below'), join(folder, 'mount')];
  mkdirSync(below);
  mkdirSync(directory);
  const child = spawn('bindfs', ['-f', below, directory], { stdio: 'ignore' });
  try {
    await mounted(directory, child);
  } catch (error) {
    child.kill('SIGKILL');
    rmSync(folder, { recursive: true, force: true });
    throw error;
  }
  return {
    name: 'bindfs',
    directory,
    pids: () => ({ mount: child.pid === undefined ? [] : [child.pid] }),
    async stop() {
      await run('umount', ['-l', directory]);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function mounted(directory: string, child: ChildProcess): Promise<void> {
  await eventually(async () => {
    if (!readFileSync('/proc/self/mounts', 'utf8').includes(` ${directory} `)) throw new Missing('not yet');
  }, child);
}
