import type { Run } from './run.ts';
import type { SimulatedProcess } from './simulated-process.ts';

/** How long a starved process runs before it waits again. */
const RUNS_MS_MAX = 20;

/** All processes wait and run in turn, as on few processors with many busy loops. */
export function starveAll(run: Run, waitMsMax: number): void {
  const { cluster } = run;
  run.isPatient = true;
  const starve = (process: SimulatedProcess): void => {
    const draw = cluster.draw(`starved ${process.name}`);
    const next = (): void => {
      const waitMs = waitMsMax * (0.4 + 0.6 * draw.next());
      process.pause(waitMs);
      cluster.later(waitMs + 1 + draw.next() * RUNS_MS_MAX, next);
    };
    next();
  };
  for (const { process } of cluster.servers) if (process !== null) starve(process);
  for (const client of cluster.clients) starve(client);
  for (const { daemon } of cluster.machines) starve(daemon);
}
