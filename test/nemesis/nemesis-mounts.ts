import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { type RunResult, run } from '../cluster/cluster-mount.ts';
import { LAUNCHER } from '../cluster/real-cluster.ts';
import type { NemesisCluster } from './cluster.ts';
import type { NamespaceNetwork } from './network.ts';
import { canRun } from './system.ts';

const LIMIT_MS = 120_000;

export interface MountedVolume {
  readonly directory: string;
  readonly pid: number;
}

/** Mounts of a cluster's volumes, each with a network address of its own, and the command line. */
export class NemesisMounts {
  readonly #cluster: NemesisCluster;
  readonly #network: NamespaceNetwork;
  readonly #mounted: MountedVolume[] = [];
  #count = 0;

  constructor(cluster: NemesisCluster, network: NamespaceNetwork) {
    this.#cluster = cluster;
    this.#network = network;
    process.prependListener('exit', this.#onExit);
  }

  /** @param flags of `leasehold mount` @throws Error with what it printed */
  async mount(place: number, volume: string, ...flags: readonly string[]): Promise<MountedVolume> {
    const directory = join(this.#cluster.folder, `mount-${++this.#count}`);
    mkdirSync(directory);
    const argv = ['mount', volume, directory, '--json', '--log', `${directory}.log`, ...flags];
    const command = [process.execPath, LAUNCHER, ...argv, ...this.#servers()];
    const [program = '', ...rest] = this.#network.inside(place, command);
    const { code, text } = await run(program, rest, { timeoutMs: LIMIT_MS });
    if (code !== 0) throw new Error(`leasehold ${argv.join(' ')}: exit code ${code}\n${text}`);
    const { pid } = JSON.parse(text) as { readonly pid: number };
    const mounted = { directory, pid };
    this.#mounted.push(mounted);
    return mounted;
  }

  unmount({ directory }: MountedVolume): Promise<RunResult> {
    return run(process.execPath, [LAUNCHER, 'umount', directory], { timeoutMs: LIMIT_MS });
  }

  /** Kills its process while programs run, and unmounts it lazily. */
  kill({ directory, pid }: MountedVolume): void {
    signal(pid, 'SIGKILL');
    canRun('fusermount3', ['-u', '-z', directory]);
  }

  /** Runs a command of the command line on the cluster. */
  leasehold(...argv: readonly string[]): Promise<RunResult> {
    return run(process.execPath, [LAUNCHER, ...argv, ...this.#servers()], { timeoutMs: LIMIT_MS });
  }

  /**
   * @returns errors in replicas and catalog, such as a file with two member sets for one view; null if there are none
   */
  async findings(): Promise<string | null> {
    const { code, text } = await this.leasehold('check');
    return code === 0 ? null : `leasehold check: exit code ${code}\n${text}`;
  }

  /** Kills all remaining mounts. */
  end(): void {
    process.off('exit', this.#onExit);
    this.#onExit();
  }

  readonly #onExit = (): void => {
    for (const mounted of this.#mounted.splice(0)) this.kill(mounted);
  };

  #servers(): readonly string[] {
    return ['--servers', this.#cluster.ids.map((id) => this.#cluster.url(id)).join(',')];
  }
}

export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    // The process has ended already.
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
  }
}
