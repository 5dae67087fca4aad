import { mkdirSync } from 'node:fs';
import { Pool } from 'undici';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { RealCluster } from '../../test/cluster/real-cluster.ts';
import { systemWorld } from '../../world/system-world.ts';
import { removeAtEnd } from '../lease/cleanup.ts';
import { processCpuMs } from '../lease/cpu.ts';
import { metricsOf, type PeerTraffic, peerTrafficOf, trafficSum } from './counters.ts';
import { bytesBetween } from './sockets.ts';

const CONNECTIONS = 64;
const SERVERS = 3;
const OPERATION_MS = 60_000;

/** The length of leases in a section, and the most that clocks may differ. */
export interface Timing {
  readonly leaseMs: number;
  readonly clockSkewMs: number;
}

/** A file under measurement. */
export interface BenchFile {
  readonly file: number;
  /** Volume and path, as in `GET /v1/info`. */
  readonly path: string;
}

/** Three servers, their counters, and connections to each. */
export class ReplicaCluster {
  readonly cluster: RealCluster;
  readonly client: ClusterClient;
  readonly #pools: ReadonlyMap<string, Pool>;
  readonly #volumes = new Set<string>();
  readonly #removeFolder: () => void;

  private constructor(cluster: RealCluster) {
    this.cluster = cluster;
    this.#removeFolder = removeAtEnd(cluster.folder);
    this.client = new ClusterClient({
      world: systemWorld,
      servers: cluster.urls,
      operationTimeoutMs: OPERATION_MS,
    });
    this.#pools = new Map(
      cluster.ids.map((id) => [
        id,
        new Pool(cluster.url(id), { connections: CONNECTIONS, headersTimeout: 0, bodyTimeout: 0 }),
      ]),
    );
  }

  /** @param profile a folder for CPU profiles of servers that end normally, or null */
  static async start({ leaseMs, clockSkewMs }: Timing, profile: string | null): Promise<ReplicaCluster> {
    if (profile !== null) mkdirSync(profile, { recursive: true });
    const environment = (): NodeJS.ProcessEnv =>
      profile === null ? {} : { NODE_OPTIONS: `--cpu-prof --cpu-prof-dir=${profile}` };
    const cluster = await RealCluster.start({
      servers: SERVERS,
      lease: `${leaseMs}ms`,
      clockSkew: `${clockSkewMs}ms`,
      environment,
    });
    return new ReplicaCluster(cluster);
  }

  get ids(): readonly string[] {
    return this.cluster.ids;
  }

  pool(id: string): Pool {
    const pool = this.#pools.get(id);
    if (pool === undefined) throw new Error(`There is no server ${id}`);
    return pool;
  }

  /**
   * Creates an empty file in a volume with this object size.
   * @param through the server that gets the command, and becomes the file's primary; by default the catalog's primary
   */
  async createFile(name: string, objectBytes: number, through?: string): Promise<BenchFile> {
    const volume = `objects-${objectBytes}`;
    if (!this.#volumes.has(volume)) {
      await this.client.command({ kind: 'volume-create', name: volume, replicas: SERVERS, objectBytes });
      this.#volumes.add(volume);
    }
    // The first command of a client that has one server in its list goes to that one.
    await using client = new ClusterClient({
      world: systemWorld,
      servers: through === undefined ? this.cluster.urls : [this.cluster.url(through)],
      operationTimeoutMs: OPERATION_MS,
    });
    const { attributes } = await client.command({
      kind: 'create-file',
      place: { volume, path: `/${name}` },
      mode: 0o644,
      uid: 0,
      gid: 0,
      exclusive: true,
    });
    return { file: attributes.inode, path: `${volume}/${name}` };
  }

  /** @returns CPU that a server has used since its start in all threads, in milliseconds */
  cpuMs(id: string): number {
    return processCpuMs([{ pid: this.cluster.pid(id) }]);
  }

  /** @returns what the servers have sent each other since their starts, as they count it */
  async traffic(ids: readonly string[] = this.ids): Promise<PeerTraffic> {
    const texts = ids.map(async (id) => {
      const response = await this.pool(id).request({ method: 'GET', path: '/metrics' });
      return peerTrafficOf(metricsOf(await response.body.text()));
    });
    return trafficSum(await Promise.all(texts));
  }

  /** @returns the same as the kernel counts it, or null if that is not known */
  socketBytes(): number | null {
    return bytesBetween(this.ids.map((id) => this.cluster.pid(id)));
  }

  async stop(signal: 'SIGTERM' | 'SIGKILL' = 'SIGKILL'): Promise<void> {
    await this.client.close();
    await Promise.all([...this.#pools.values()].map((pool) => pool.destroy()));
    if (signal === 'SIGTERM') await Promise.all(this.ids.map((id) => this.cluster.kill(id, signal)));
    await this.cluster.stop();
    this.#removeFolder();
  }
}
