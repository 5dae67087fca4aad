import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { freePorts } from '../test/cluster/real-cluster.ts';
import type { LeaseOrder, LeaseReport } from './lease-server.ts';

const PROGRAM = fileURLToPath(new URL('./lease-server.ts', import.meta.url));

export interface LeaseFigures {
  readonly batch: number;
  /** Leases acquired per second over all three processes, one entry per run. */
  readonly perSecond: readonly number[];
}

/** Three processes acquire a batch of fresh leases each, all at once, again and again. */
export async function measureLeases(batches: readonly number[], runs: number): Promise<LeaseFigures[]> {
  const ids = ['s1', 's2', 's3'];
  const ports = await freePorts(ids.length);
  const peers = ids.map((id, place) => `${id}=${ports[place]}`);
  const servers = ids.map((id) =>
    fork(PROGRAM, [id, ...peers], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] }),
  );
  try {
    await Promise.all(servers.map((server) => next(server, 'ready')));
    let first = 1;
    const figures: LeaseFigures[] = [];
    for (const batch of batches) {
      const perSecond: number[] = [];
      const share = Math.ceil(batch / servers.length);
      for (let run = 0; run < runs; run++) {
        const begunMs = performance.now();
        const done = servers.map((server) => next(server, 'acquired'));
        for (const server of servers) {
          const order: LeaseOrder = { kind: 'acquire', first, count: share };
          first += share;
          server.send(order);
        }
        await Promise.all(done);
        perSecond.push((share * servers.length * 1000) / (performance.now() - begunMs));
      }
      figures.push({ batch, perSecond });
    }
    return figures;
  } finally {
    for (const server of servers) server.kill('SIGKILL');
  }
}

async function next(server: ChildProcess, kind: LeaseReport['kind']): Promise<LeaseReport> {
  for (;;) {
    const [report] = (await once(server, 'message')) as [LeaseReport];
    if (report.kind === kind) return report;
  }
}
