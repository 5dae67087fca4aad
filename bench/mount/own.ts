import { ClusterMount } from '../../test/cluster/cluster-mount.ts';
import { LAUNCHER, RealCluster } from '../../test/cluster/real-cluster.ts';
import { CLOSE_ROWS, type SubjectName } from './names.ts';
import { run } from './programs.ts';
import { descendants, Missing, type Subject } from './subject.ts';

/** A lease as servers have it by default, and not the short one of tests. */
const TIMING = { lease: '5s', clockSkew: '500ms' };

/** Of the transports that there may be, the one that a mount has without being told. */
const USUAL: SubjectName = 'native';

/** Three servers of this project with a volume of three replicas, and its mount by one of the transports. */
export async function ownSubject(name: SubjectName): Promise<Subject> {
  const choice = await choiceOf(name);
  const cluster = await RealCluster.start(TIMING);
  try {
    await cluster.createVolume('main');
    const mount = await ClusterMount.start(cluster, 'main', ...choice);
    return {
      name,
      directory: mount.directory,
      ...(name === 'flush-behind' ? { rows: CLOSE_ROWS } : {}),
      pids: () => {
        const servers = cluster.ids.map((id) => cluster.pid(id));
        return [mount.pid, ...[...servers, mount.pid].flatMap((pid) => [pid, ...descendants(pid)])];
      },
      async stop() {
        await mount.stop();
        await cluster.stop();
      },
    };
  } catch (error) {
    await cluster.stop();
    throw new Missing(error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error));
  }
}

/** @returns the words by which `leasehold mount` makes a mount of this name */
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
