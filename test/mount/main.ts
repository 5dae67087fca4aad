import { parseArgs } from 'node:util';
import type { ClusterMount } from '../cluster/cluster-mount.ts';
import { RealCluster } from '../cluster/real-cluster.ts';
import { mountOver, noMounts } from '../posix/mounts.ts';
import { Coherence } from './coherence.ts';
import { befall, FAULTS, type Fault } from './faults.ts';
import { unpromised } from './subjects.ts';

const HELP = `Changes and queries things on several mounts at once, and judges each answer.

usage: npm run coherence -- [options]

  --seconds NUMBER    for how long (default: 60)
  --rounds NUMBER     the most rounds
  --seed NUMBER       of the random choices (default: 1)
  --mounts NUMBER     (default: 2)
  --groups NUMBER     how many things of each kind (default: 2)
  --actors NUMBER     how many change and query at once (default: 8)
  --transport NAME    of the mounts (default: kernel)
  --cache MODE        of the mounts (default: leases)
  --faults LIST       of ${FAULTS.join(', ')}, with commas between (default: none)
`;

/** Longer than a fail-over. */
const PATIENCE = ['--op-timeout', '60s'];

async function main(argv: readonly string[]): Promise<number> {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      seconds: { type: 'string', default: '60' },
      rounds: { type: 'string', default: '1000000000' },
      seed: { type: 'string', default: '1' },
      mounts: { type: 'string', default: '2' },
      groups: { type: 'string', default: '2' },
      actors: { type: 'string', default: '8' },
      transport: { type: 'string', default: 'kernel' },
      cache: { type: 'string', default: 'leases' },
      faults: { type: 'string', default: '' },
      help: { type: 'boolean', default: false },
    },
  });
  const obstacle = await noMounts();
  if (values.help || obstacle !== false) {
    process.stdout.write(obstacle === false ? HELP : `coherence: ${obstacle}\n`);
    return values.help ? 0 : 2;
  }
  const faults = FAULTS.filter((fault: Fault) => values.faults.split(',').includes(fault));
  const cluster = await RealCluster.start();
  const mounts: ClusterMount[] = [];
  const ended = new AbortController();
  try {
    await cluster.createVolume('main');
    while (mounts.length < Number(values.mounts)) {
      mounts.push(await mountOver(cluster, values.transport, '--cache', values.cache, ...PATIENCE));
    }
    const coherence = new Coherence(mounts, {
      seed: Number(values.seed),
      groups: Number(values.groups),
      rounds: Number(values.rounds),
      actors: Number(values.actors),
      limitMs: Number(values.seconds) * 1000,
      without: unpromised(values.transport),
    });
    const befallen = befall(faults, cluster, mounts, ended.signal);
    const { changes, looks, failed, wrong } = await coherence.run();
    ended.abort();
    const count = await befallen;
    process.stdout.write(`${changes} changes, ${looks} looks, ${count} faults, ${wrong.length} wrong\n`);
    for (const [what, times] of failed) process.stdout.write(`failed: ${times} times ${what}\n`);
    for (const line of wrong) process.stdout.write(`wrong: ${line}\n`);
    return wrong.length === 0 ? 0 : 1;
  } finally {
    ended.abort();
    for (const mount of mounts) await mount.stop();
    await cluster.stop();
  }
}

process.exitCode = await main(process.argv.slice(2));
