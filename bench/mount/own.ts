import { ClusterMount } from '../../test/cluster/cluster-mount.ts';
import { LAUNCHER, RealCluster } from '../../test/cluster/real-cluster.ts';
import { CLOSE_ROWS, type PolicyName, type SubjectName } from './names.ts';
import { run } from './programs.ts';
import { descendants, Missing, type Subject } from './subject.ts';

/** The servers' default lease, and not the short one of tests. */
const TIMING = { lease: '5s', clockSkew: '500ms' };

/** The default transport of a mount. */
const USUAL: SubjectName = 'native';

/** Three servers of this project with a volume of three replicas, mounted by one of the transports. */
export async function ownSubject(name: SubjectName): Promise<Subject> {
  const choice = await choiceOf(name);
  const cluster = await startedCluster();
  try {
    await cluster.createVolume('main');
    const mount = await ClusterMount.start(cluster, 'main', ...choice);
    return {
      ...subjectOf(name, cluster, [mount]),
      ...(name === 'flush-behind' ? { rows: CLOSE_ROWS } : {}),
      async stop() {
        await mount.stop();
        await cluster.stop();
      },
    };
  } catch (error) {
    await cluster.stop();
    throw missing(error);
  }
}

const POLICIES: Readonly<Record<PolicyName, string>> = { ttl: 'ttl:1s', leases: 'leases' };

/** Mounts that differ in their cache policy only, each of its own volume, on one cluster. */
export class Policies {
  #cluster: Promise<RealCluster> | null = null;
  #subjects = 0;

  /** @param mounts the number of mounts of its volume */
  async subject(name: PolicyName, mounts: number): Promise<Subject> {
    this.#cluster ??= startedCluster();
    const cluster = await this.#cluster;
    this.#subjects += 1;
    const started: ClusterMount[] = [];
    const stop = async (): Promise<void> => {
      for (const mount of started) await mount.stop();
      this.#subjects -= 1;
      if (this.#subjects > 0) return;
      this.#cluster = null;
      await cluster.stop();
    };
    try {
      await cluster.createVolume(name);
      const flags = ['-o', `transport=kernel,cache=${POLICIES[name]}`];
      while (started.length < mounts) started.push(await ClusterMount.start(cluster, name, ...flags));
      return { ...subjectOf(name, cluster, started), stop };
    } catch (error) {
      await stop();
      throw missing(error);
    }
  }
}

async function startedCluster(): Promise<RealCluster> {
  try {
    return await RealCluster.start(TIMING);
  } catch (error) {
    throw missing(error);
  }
}

function subjectOf(
  name: SubjectName,
  cluster: RealCluster,
  mounts: readonly ClusterMount[],
): Omit<Subject, 'stop'> {
  const [directory = '', ...others] = mounts.map((mount) => mount.directory);
  const whole = (pid: number) => [pid, ...descendants(pid)];
  return {
    ...{ name, directory, others },
    pids: () => ({
      mount: mounts.flatMap(({ pid }) => whole(pid)),
      ...Object.fromEntries(cluster.ids.map((id) => [id, whole(cluster.pid(id))])),
    }),
    requests: () => requestsOf(cluster.urls),
  };
}

const COUNTED = /^leasehold_http_requests_total\{.*route="([^"]*)".* (\d+)$/;

async function requestsOf(urls: readonly string[]): Promise<ReadonlyMap<string, number>> {
  const counts = new Map<string, number>();
  for (const url of urls) {
    const text = await (await fetch(`${url}/metrics`)).text();
    for (const line of text.split('\n')) {
      const [, kind = '/metrics', count = '0'] = COUNTED.exec(line) ?? [];
      if (kind !== '/metrics') counts.set(kind, (counts.get(kind) ?? 0) + Number(count));
    }
  }
  return counts;
}

function missing(error: unknown): Missing {
  return new Missing(error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error));
}

/** @returns the options of `leasehold mount` for this transport */
async function choiceOf(name: SubjectName): Promise<string[]> {
  const help = await run(process.execPath, [LAUNCHER, 'mount', '--help']);
  if (name === 'flush-behind') {
    if (help.includes('--flush-behind')) return ['--flush-behind', '-o', 'transport=kernel'];
    throw new Missing('mounts do not close behind');
  }
  if (help.includes('transport=')) return ['-o', `transport=${name}`];
  if (help.includes('--transport')) return ['--transport', name];
  if (name === USUAL) return [];
  throw new Missing(`mounts have no transport "${name}" to choose`);
}
