import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually } from './eventually.ts';
import type { SubjectName } from './names.ts';
import { isInstalled, run } from './programs.ts';
import { descendants, Missing, type Subject } from './subject.ts';

/**
 * Volumes of GlusterFS as in its guide, with three replicas on three bricks of this machine. A machine can have one
 * management daemon: the first volume starts it, and it ends with the last one.
 */
export class Gluster {
  #daemon: Daemon | null = null;
  #volumes = 0;

  /**
   * @param options of the volume that differ from the default, with their values
   * @throws Missing if it is not possible on this machine
   */
  async subject(name: SubjectName, options: readonly (readonly [string, string])[] = []): Promise<Subject> {
    const daemon = await this.#started();
    const volume = `leasehold-bench-${process.pid}-${name}`;
    const place = join(daemon.folder, name);
    const directory = join(place, 'mount');
    mkdirSync(directory, { recursive: true });
    this.#volumes += 1;
    const stop = async (): Promise<void> => {
      await run('umount', ['-l', directory]).catch(() => undefined);
      await gluster('volume', 'stop', volume, 'force').catch(() => undefined);
      await gluster('volume', 'delete', volume).catch(() => undefined);
      this.#volumes -= 1;
      if (this.#volumes === 0) this.#stop(daemon);
    };
    try {
      const bricks = [1, 2, 3].map((number) => `${hostname()}:${join(place, `brick${number}`)}`);
      await gluster('volume', 'create', volume, 'replica', '3', ...bricks, 'force');
      for (const [option, value] of options) await gluster('volume', 'set', volume, option, value);
      await gluster('volume', 'start', volume);
      await run('mount', ['-t', 'glusterfs', `${hostname()}:/${volume}`, directory]);
    } catch (error) {
      await stop();
      throw new Missing(`GlusterFS does not start: ${error instanceof Error ? error.message.trim() : error}`);
    }
    const pids = () => ({ all: [...new Set([...processesWith(place), ...processesWith(volume)])] });
    return { name, directory, pids, stop };
  }

  async #started(): Promise<Daemon> {
    if (this.#daemon !== null) return this.#daemon;
    if (process.getuid?.() !== 0) throw new Missing('GlusterFS needs root');
    for (const program of ['glusterd', 'gluster', 'mount.glusterfs']) {
      if (!(await isInstalled(program))) throw new Missing(`${program} is not installed`);
    }
    const folder = mkdtempSync(join(tmpdir(), 'leasehold-bench-gluster-'));
    for (const name of ['work', 'run', 'log']) mkdirSync(join(folder, name));
    const description = join(folder, 'glusterd.vol');
    writeFileSync(
      description,
      `volume management\n  type mgmt/glusterd\n  option working-directory ${join(folder, 'work')}\n` +
        `  option run-directory ${join(folder, 'run')}\n  option transport-type socket\nend-volume\n`,
    );
    const log = join(folder, 'log', 'glusterd.log');
    const child = spawn('glusterd', ['-N', '-f', description, '-l', log], { stdio: 'ignore' });
    const daemon = { folder, child };
    try {
      await eventually(() => gluster('volume', 'list'), child);
    } catch (error) {
      this.#stop(daemon);
      throw new Missing(`GlusterFS does not start: ${error instanceof Error ? error.message.trim() : error}`);
    }
    this.#daemon = daemon;
    return daemon;
  }

  #stop({ folder, child }: Daemon): void {
    this.#daemon = null;
    child.kill('SIGTERM');
    for (const pid of processesWith(folder)) process.kill(pid, 'SIGKILL');
    rmSync(folder, { recursive: true, force: true });
  }
}

interface Daemon {
  /** The folder of all files of GlusterFS. */
  readonly folder: string;
  readonly child: ChildProcess;
}

function gluster(...argv: string[]): Promise<string> {
  return run('gluster', ['--mode=script', ...argv]);
}

/** @returns processes whose command line contains the text, and their children */
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
