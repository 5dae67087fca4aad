/** A cluster with two mounts that programs use, while one of the mounts or a server has a fault. */
import { setTimeout as delay } from 'node:timers/promises';
import { Prng } from '../../base/prng.ts';
import { NemesisCluster } from './cluster.ts';
import { Caller } from './names-caller.ts';
import { type MountedVolume, NemesisMounts, signal } from './nemesis-mounts.ts';
import type { NamespaceNetwork } from './network.ts';
import { countUp } from './recorder.ts';

export const TROUBLES = ['pause', 'cut', 'kill'] as const;
export type Trouble = (typeof TROUBLES)[number];

export interface Variant {
  readonly servers: number;
  readonly cache: 'ttl' | 'leases' | 'strict';
  readonly transport: 'kernel' | 'native';
  readonly trouble: Trouble;
  /** How often a schedule repeats what it does with one name or file. */
  readonly rounds: number;
}

const VOLUME = 'schedules';
const LEASE_MS = 2_000;
const SKEW_MS = 100;
/** The servers' time limit; that of a mount is shorter. */
const SERVER_TIMEOUT_MS = 15_000;
/** Longer than a cache session, and than a lease. */
const TROUBLE_MS = 8_000;
const READY_MS_MAX = 120_000;
/** The two mounts, and the one that reads at the end. */
export const MOUNT_PLACES = 3;

export class ScheduleWorld {
  readonly prng: Prng;
  readonly variant: Variant;
  readonly wrong: string[] = [];
  readonly facts = new Map<string, number>();
  readonly #network: NamespaceNetwork;
  readonly #cluster: NemesisCluster;
  readonly #mounts: NemesisMounts;
  readonly #callers: Caller[] = [];
  readonly #errors = new Map<string, number>();
  #one: MountedVolume;
  readonly #other: MountedVolume;

  private constructor(
    variant: Variant,
    seed: number,
    network: NamespaceNetwork,
    parts: { cluster: NemesisCluster; mounts: NemesisMounts; one: MountedVolume; other: MountedVolume },
  ) {
    this.variant = variant;
    this.prng = new Prng(seed);
    this.#network = network;
    this.#cluster = parts.cluster;
    this.#mounts = parts.mounts;
    this.#one = parts.one;
    this.#other = parts.other;
  }

  /** @param limit the time limit of a call on a mount, as in `--op-timeout` */
  static async start(
    variant: Variant,
    seed: number,
    limit: string,
    network: NamespaceNetwork,
  ): Promise<ScheduleWorld> {
    const cluster = await NemesisCluster.start({
      servers: variant.servers,
      leaseMs: LEASE_MS,
      clockSkewMs: SKEW_MS,
      operationTimeoutMs: SERVER_TIMEOUT_MS,
      network,
      ownDisks: false,
    });
    const mounts = new NemesisMounts(cluster, network);
    try {
      const { code, text } = await mounts.leasehold('volume', 'create', VOLUME, '--replicas', '3');
      if (code !== 0) throw new Error(`The volume cannot be created: ${text}`);
      const cache = variant.cache === 'ttl' ? 'ttl:1s' : variant.cache;
      const flags = ['--cache', cache, '--transport', variant.transport, '--op-timeout', limit];
      const one = await mounts.mount(variant.servers, VOLUME, ...flags);
      const other = await mounts.mount(variant.servers + 1, VOLUME, ...flags);
      return new ScheduleWorld(variant, seed, network, { cluster, mounts, one, other });
    } catch (error) {
      mounts.end();
      await cluster.stop();
      throw error;
    }
  }

  /** @returns a path on the mount that gets the fault, if a mount does */
  one(...names: readonly string[]): string {
    return [this.#one.directory, ...names].join('/');
  }

  other(...names: readonly string[]): string {
    return [this.#other.directory, ...names].join('/');
  }

  /** @returns a new program that makes one call at a time */
  caller(): Caller {
    const caller = new Caller(this.#errors);
    this.#callers.push(caller);
    return caller;
  }

  count(fact: string): void {
    countUp(this.facts, fact);
  }

  /** @returns the server that creates files with contents, and orders names */
  async catalogPrimary(): Promise<string> {
    for (let attempt = 0; attempt < 100; attempt++) {
      const primary = (await this.#cluster.status())?.catalog.primary ?? null;
      if (primary !== null) return primary;
      await delay(100);
    }
    throw new Error('The catalog has no primary');
  }

  /** Injects a fault at a server, does the work, waits until the fault has lasted, and repairs it. */
  async serverInTrouble(id: string, work: () => Promise<void>, ms = TROUBLE_MS): Promise<void> {
    const place = this.#cluster.place(id);
    await this.#inTrouble(
      {
        pause: () => this.#cluster.signal(id, 'SIGSTOP'),
        cut: () => this.#network.unplug(place),
        kill: () => this.#cluster.kill(id),
      },
      {
        pause: () => this.#cluster.signal(id, 'SIGCONT'),
        cut: () => this.#network.plug(place),
        kill: () => this.#cluster.spawn(id),
      },
      work,
      ms,
    );
    await this.#cluster.ready([id], READY_MS_MAX);
  }

  /** The same for the first mount; a killed one is not mounted again. */
  async mountInTrouble(work: () => Promise<void>, ms = TROUBLE_MS): Promise<void> {
    const mount = this.#one;
    const place = this.variant.servers;
    await this.#inTrouble(
      {
        pause: () => signal(mount.pid, 'SIGSTOP'),
        cut: () => this.#network.unplug(place),
        kill: () => this.#mounts.kill(mount),
      },
      {
        pause: () => signal(mount.pid, 'SIGCONT'),
        cut: () => this.#network.plug(place),
        kill: () => undefined,
      },
      work,
      ms,
    );
  }

  async #inTrouble(
    begin: Readonly<Record<Trouble, () => unknown>>,
    end: Readonly<Record<Trouble, () => unknown>>,
    work: () => Promise<void>,
    ms: number,
  ): Promise<void> {
    const { trouble } = this.variant;
    const endMs = performance.now() + ms;
    await begin[trouble]();
    try {
      await work();
      await delay(Math.max(0, endMs - performance.now()));
    } finally {
      await end[trouble]();
    }
  }

  /** @returns the contents of files as a new mount reads them; null for an absent file */
  async contents(paths: readonly string[]): Promise<Map<string, string | null>> {
    const mount = await this.#mounts.mount(this.variant.servers + 2, VOLUME, '--cache', 'strict');
    const caller = this.caller();
    const found = new Map<string, string | null>();
    for (const path of paths) {
      const read = await caller.call('ENOENT', 'get', `${mount.directory}/${path}`);
      found.set(path, read.kind === 'ok' ? read.value : null);
    }
    return found;
  }

  /** Files that were closed or synced must have these contents. */
  async expectContents(expected: ReadonlyMap<string, string>): Promise<void> {
    const found = await this.contents([...expected.keys()]);
    for (const [path, text] of expected) {
      const there = found.get(path) ?? null;
      if (there === text) continue;
      const shown =
        there === null ? 'is gone' : `has ${there.length} bytes ${JSON.stringify(there.slice(0, 40))}`;
      this.wrong.push(`${path} ${shown}, not ${text.length} bytes ${JSON.stringify(text.slice(0, 40))}`);
    }
  }

  /** Checks the whole cluster, and ends it. */
  async end(): Promise<void> {
    const findings = await this.#mounts.findings();
    if (findings !== null) this.wrong.push(findings);
    for (const { id, how, log } of this.#cluster.deaths)
      this.wrong.push(`${id} ended by itself: ${how}\n${log}`);
    await this.stop();
    if (this.wrong.length === 0) this.#cluster.remove();
    else this.wrong.push(`Disks and logs are in ${this.#cluster.folder}`);
  }

  async stop(): Promise<void> {
    await Promise.all(this.#callers.map((caller) => caller.end()));
    this.#mounts.end();
    await this.#cluster.stop();
  }
}
