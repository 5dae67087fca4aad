import { until } from '../cluster/real-cluster.ts';
import type { NemesisCluster } from './cluster.ts';
import type { Load } from './load.ts';
import type { Answer, Requests } from './requests.ts';
import type { SnapshotWatch } from './snapshots.ts';

/** How long a cluster without faults may take until it is healed. */
const WHOLE_MS = 120_000;
const ASKED_AT_ONCE = 8;

/** Repairs a cluster after faults, and waits until it is healed. */
export class Recovery {
  readonly #cluster: NemesisCluster;
  readonly #requests: Requests;
  readonly #load: Load;
  readonly #watch: SnapshotWatch;

  constructor(cluster: NemesisCluster, requests: Requests, load: Load, watch: SnapshotWatch) {
    this.#cluster = cluster;
    this.#requests = requests;
    this.#load = load;
    this.#watch = watch;
  }

  /** Waits until each server runs, is connected to all others, has free space, and is ready. */
  async heal(): Promise<void> {
    const { ids, network } = this.#cluster;
    network.heal();
    for (const id of ids) {
      this.#cluster.disk(id).relieve();
      this.#cluster.signal(id, 'SIGCONT');
      if (!this.#cluster.isRunning(id)) this.#cluster.spawn(id);
    }
    await this.#cluster.ready(ids, WHOLE_MS);
  }

  /** Waits until each replica of each file has all acknowledged operations. */
  async allCurrent(): Promise<void> {
    await this.heal();
    await this.#each((file) =>
      until(`all replicas of file ${file} are current`, () => this.#isCurrent(file), WHOLE_MS),
    );
  }

  async #isCurrent(file: number): Promise<boolean> {
    const answer = await this.#ask(file, 'GET', 'standing');
    if (answer === null) return false;
    const { view, replicas } = JSON.parse(answer.bytes.toString('utf8')) as {
      readonly view: { readonly members: readonly string[] };
      readonly replicas: readonly { readonly role: string; readonly state: string }[];
    };
    const others = replicas.filter(({ role }) => role !== 'primary');
    return others.length === view.members.length - 1 && others.every(({ state }) => state === 'current');
  }

  /** Flushes all replicas: what was acknowledged then survives a loss of power of all servers. */
  async flushAll(): Promise<void> {
    await this.heal();
    await this.#each((file) =>
      until(
        `file ${file} is flushed`,
        async () => (await this.#ask(file, 'POST', 'flush')) !== null,
        WHOLE_MS,
      ),
    );
    await until('the catalog is flushed', async () => {
      const server = this.#cluster.ids[0] as string;
      const attempt = await this.#requests.ask(server, { method: 'POST', path: '/v1/catalog/flush' });
      return attempt.kind === 'answer' && attempt.code === null;
    });
  }

  /** Runs `work` while no client makes operations. */
  async quiet(work: () => Promise<void>): Promise<void> {
    await Promise.all([this.#load.pause(), this.#watch.pause()]);
    try {
      await work();
    } finally {
      this.#load.resume();
      this.#watch.resume();
    }
  }

  async #ask(file: number, method: 'GET' | 'POST', what: string): Promise<Answer | null> {
    const server = this.#cluster.ids[file % this.#cluster.ids.length] as string;
    const attempt = await this.#requests.ask(server, { method, path: `/v1/data/${file}/${what}` });
    return attempt.kind === 'answer' && attempt.code === null ? attempt : null;
  }

  async #each(work: (file: number) => Promise<void>): Promise<void> {
    const files = [...this.#load.keys.files(), ...this.#watch.files].values();
    const workers = Array.from({ length: ASKED_AT_ONCE }, async () => {
      for (const file of files) await work(file);
    });
    await Promise.all(workers);
  }
}
