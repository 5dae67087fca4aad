import { join } from 'node:path';
import { systemWorld } from '../../world/system-world.ts';
import { ClusterClient } from '../cluster/cluster-client.ts';
import { DevCluster } from '../dev/dev-cluster.ts';
import { freePorts } from '../dev/free-ports.ts';
import type { ServerProcess } from '../dev/server-process.ts';
import { mountObstacle } from '../mounts/mount-process.ts';
import type { GapMeter } from './gap-meter.ts';
import { JournalLoad } from './journal-load.ts';
import type { Load } from './load.ts';
import { MountLoad } from './mount-load.ts';
import { SlotsLoad } from './slots-load.ts';
import { UploadLoad } from './upload-load.ts';
import { pollUntil, STEP_TIMEOUT_MS } from './waiting.ts';

const SERVERS = 3;
const PATIENCE_MS = 5_000;

/** A load whose gaps are measured and bounded, since each of its writes is one write to one open file. */
export type ProbedLoad = Load & { readonly meter: GapMeter };

export interface StageOptions {
  readonly leaseMs: number;
  readonly clockSkewMs: number;
  say(text: string): void;
}

/** The setting of all acts: real servers, a mount if possible, and loads. */
export class Stage {
  static readonly VOLUME = DevCluster.VOLUME;
  readonly cluster: DevCluster;
  readonly mount: string | null;
  readonly probed: readonly ProbedLoad[];
  readonly loads: readonly Load[];
  readonly #reader: ClusterClient;
  #say: (text: string) => void;

  private constructor(
    cluster: DevCluster,
    reader: ClusterClient,
    mount: string | null,
    probed: readonly ProbedLoad[],
    say: (text: string) => void,
  ) {
    this.cluster = cluster;
    this.#reader = reader;
    this.mount = mount;
    this.probed = probed;
    this.#say = say;
    this.loads = [...probed, new UploadLoad(DevCluster.VOLUME, cluster.urls, (text) => this.#say(text))];
  }

  static async open(folder: string, { leaseMs, clockSkewMs, say }: StageOptions): Promise<Stage> {
    const cluster = await DevCluster.start({
      ports: await freePorts(SERVERS),
      data: join(folder, 'data'),
      leaseMs,
      clockSkewMs,
      onUnexpectedEnd: (server, how) => say(`Server ${server.plan.id} stopped unexpectedly: it ${how}`),
    });
    try {
      const mount = await mountIfPossible(cluster, join(folder, 'mount'), say);
      const reader = new ClusterClient({ world: systemWorld, servers: cluster.urls, access: cluster.access });
      const journal = await createFile(cluster.client, '/journal');
      const slots = await createFile(cluster.client, '/slots');
      const probed: ProbedLoad[] = [
        new JournalLoad(
          cluster.client.openFile(journal),
          DevCluster.VOLUME,
          cluster.urls,
          mount === null ? null : `${mount}/journal`,
          say,
        ),
        ...(mount === null ? [] : [new MountLoad(`${mount}/mounted`)]),
        new SlotsLoad(cluster.client.openFile(slots), reader.openFile(slots), say),
      ];
      return new Stage(cluster, reader, mount, probed, say);
    } catch (error) {
      await cluster.stop();
      throw error;
    }
  }

  set say(say: (text: string) => void) {
    this.#say = say;
  }

  get servers(): readonly ServerProcess[] {
    return this.cluster.servers;
  }

  get client(): ClusterClient {
    return this.cluster.client;
  }

  createFile(path: string): Promise<number> {
    return createFile(this.client, path);
  }

  async primaryOf(path: string): Promise<ServerProcess> {
    return pollUntil(`a primary of ${path}`, async () => {
      const { primary } = await this.client.info(DevCluster.VOLUME, path);
      return this.servers.find(({ plan, state }) => plan.id === primary && state === 'running') ?? null;
    });
  }

  /** Restarts, resumes and reconnects every server; resolves when all replicas are current. */
  async restoreServers(): Promise<void> {
    for (const server of this.servers) {
      server.resume();
      server.reconnect();
    }
    const dead = this.servers.filter(({ state }) => state === 'dead');
    await Promise.all(dead.map((server) => server.start()));
    await Promise.all(dead.map((server) => server.waitUntilReady(STEP_TIMEOUT_MS)));
    await this.waitUntilCurrent();
  }

  /** Resolves when all replicas of all files under load are current, and the cluster reports that it is healthy. */
  async waitUntilCurrent(): Promise<void> {
    let sayAtMs = systemWorld.nowMs() + PATIENCE_MS;
    await pollUntil('all replicas to be current', async () => {
      const why = await this.#whyNotCurrent();
      if (why !== null && systemWorld.nowMs() >= sayAtMs) {
        sayAtMs = systemWorld.nowMs() + PATIENCE_MS;
        this.#say(`  not yet current: ${why}`);
      }
      return why === null ? true : null;
    });
  }

  /** @returns which replicas are not current, or why the cluster is not healthy; null if all are and it is */
  async #whyNotCurrent(): Promise<string | null> {
    for (const { path } of this.probed) {
      const { replicas } = await this.client.info(DevCluster.VOLUME, path);
      const current = replicas.filter(({ state, reachable }) => state === 'current' && reachable);
      if (current.length < SERVERS) return `${current.length} of ${SERVERS} replicas of ${path}`;
    }
    const { verdict, reasons } = await this.client.status();
    return verdict === 'healthy' ? null : reasons.join('; ');
  }

  async close(): Promise<void> {
    await this.#reader.close();
    await this.cluster.stop();
  }
}

async function mountIfPossible(
  cluster: DevCluster,
  directory: string,
  say: (text: string) => void,
): Promise<string | null> {
  const obstacle = await mountObstacle();
  if (obstacle !== null) {
    say(`The mount is not tested: ${obstacle}`);
    return null;
  }
  return (await cluster.mount(directory)).directory;
}

async function createFile(client: ClusterClient, path: string): Promise<number> {
  const { attributes } = await client.command({
    kind: 'create-file',
    place: { volume: DevCluster.VOLUME, path },
    mode: 0o644,
    uid: process.getuid?.() ?? 0,
    gid: process.getgid?.() ?? 0,
    // A file of an earlier run would have records that this run does not know.
    exclusive: true,
  });
  return attributes.inode;
}
