import type { ChildProcess } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';

const START_MS_MAX = 20_000;
const LOOK_MS = 200;

/** Repeats `attempt` until it succeeds, for a bounded time and while the process runs. */
export async function eventually(attempt: () => Promise<unknown>, child: ChildProcess): Promise<void> {
  const deadlineMs = performance.now() + START_MS_MAX;
  for (;;) {
    try {
      await attempt();
      return;
    } catch (error) {
      if (performance.now() > deadlineMs || child.exitCode !== null || child.pid === undefined) throw error;
      await delay(LOOK_MS);
    }
  }
}
