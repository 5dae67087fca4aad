import { until } from '../cluster/real-cluster.ts';
import type { NemesisCluster } from './cluster.ts';
import type { Load } from './load.ts';
import type { Answer, Requests } from './requests.ts';
import type { SnapshotWatch } from './snapshots.ts';

/** How long a cluster without faults may take to be whole again. */
const WHOLE_MS = 120_000;
const ASKED_AT_ONCE = 8;

/** Makes a cluster whole after faults, and says when it is. */
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

  /** Every server runs, hears all others, has room, and serves. */
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

  /** Every replica of every file has all that was acknowledged. */
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

  /** Everything acknowledged outlives a loss of power of all servers from now on. */
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

  /** Does something while no client does anything. */
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
