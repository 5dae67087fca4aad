import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { isInstalled, run } from './programs.ts';
import { descendants, Missing, type Subject } from './subject.ts';

const START_MS_MAX = 20_000;
const LOOK_MS = 200;

/** The file system that everything else here lies on. */
export async function diskSubject(): Promise<Subject> {
  const directory = mkdtempSync(join(tmpdir(), 'leasehold-bench-disk-'));
  const stop = async () => rmSync(directory, { recursive: true, force: true });
  return { name: 'disk', directory, pids: () => [], stop };
}

/** The local disk once more, through FUSE and a process that passes everything on. */
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
    pids: () => (child.pid === undefined ? [] : [child.pid]),
    async stop() {
      await run('umount', ['-l', directory]);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** GlusterFS as its guide has it: a volume with three replicas, on three bricks of this machine. */
export async function glusterSubject(): Promise<Subject> {
  if (process.getuid?.() !== 0) throw new Missing('GlusterFS needs root');
  for (const program of ['glusterd', 'gluster', 'mount.glusterfs']) {
    if (!(await isInstalled(program))) throw new Missing(`${program} is not installed`);
  }
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-bench-gluster-'));
  const directory = join(folder, 'mount');
  for (const name of ['work', 'run', 'log', 'mount']) mkdirSync(join(folder, name));
  const description = join(folder, 'glusterd.vol');
  writeFileSync(
    description,
    `volume management\n  type mgmt/glusterd\n  option working-directory ${join(folder, 'work')}\n` +
      `  option run-directory ${join(folder, 'run')}\n  option transport-type socket\nend-volume\n`,
  );
  const daemon = spawn('glusterd', ['-N', '-f', description, '-l', join(folder, 'log', 'glusterd.log')], {
    stdio: 'ignore',
  });
  const gluster = (...argv: string[]) => run('gluster', ['--mode=script', ...argv]);
  const volume = `leasehold-bench-${process.pid}`;
  const stop = async () => {
    await run('umount', ['-l', directory]).catch(() => undefined);
    await gluster('volume', 'stop', volume, 'force').catch(() => undefined);
    await gluster('volume', 'delete', volume).catch(() => undefined);
    daemon.kill('SIGTERM');
    for (const pid of processesWith(folder)) process.kill(pid, 'SIGKILL');
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    await eventually(() => gluster('volume', 'list'), daemon);
    const bricks = [1, 2, 3].map((number) => `${hostname()}:${join(folder, `brick${number}`)}`);
    await gluster('volume', 'create', volume, 'replica', '3', ...bricks, 'force');
    await gluster('volume', 'start', volume);
    await run('mount', ['-t', 'glusterfs', `${hostname()}:/${volume}`, directory]);
  } catch (error) {
    await stop();
    throw new Missing(`GlusterFS does not start: ${error instanceof Error ? error.message.trim() : error}`);
  }
  return {
    name: 'gluster',
    directory,
    pids: () => [...new Set([...processesWith(folder), ...processesWith(volume)])],
    stop,
  };
}

async function mounted(directory: string, child: ChildProcess): Promise<void> {
  await eventually(async () => {
    if (!readFileSync('/proc/self/mounts', 'utf8').includes(` ${directory} `)) throw new Missing('not yet');
  }, child);
}

/** Tries until it succeeds, in bounded time, while the process lives. */
async function eventually(attempt: () => Promise<unknown>, child: ChildProcess): Promise<void> {
  const deadlineMs = performance.now() + START_MS_MAX;
  for (;;) {
    try {
      await attempt();
      return;
    } catch (error) {
      if (performance.now() > deadlineMs || child.exitCode !== null || child.pid === undefined) throw error;
      await delay(LOOK_MS);
    }
  }
}

/** @returns processes whose command line names this, those they began among them */
function processesWith(text: string): number[] {
  return descendants(1).filter((pid) => {
    if (pid === process.pid) return false;
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(text);
    } catch (error) {
      if (error instanceof Error && 'code' in error && ['ENOENT', 'ESRCH'].includes(String(error.code)))
        return false;
      throw error;
    }
  });
}
