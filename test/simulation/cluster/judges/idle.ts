import type { Judge } from '../judge.ts';
import type { Run } from '../run.ts';

const QUIET_MS = 10_000;
/** Requests that an idle server makes in a second. */
const QUIET_REQUESTS_MAX = 0.5;

/** Without programs the servers make next to no requests. */
export class IdleJudge implements Judge {
  async quiet(run: Run): Promise<void> {
    const { time, http, servers } = run.cluster;
    const [before, beganMs] = [http.requestCount, time.nowMs];
    await time.run(beganMs + QUIET_MS);
    const perSecond = ((http.requestCount - before) * 1_000) / QUIET_MS;
    if (perSecond > QUIET_REQUESTS_MAX * servers.length)
      run.violation(`the idle cluster makes ${perSecond.toFixed(1)} requests in a second`);
  }
}
