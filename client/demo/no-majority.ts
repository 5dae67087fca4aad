import { isErrorCode } from '../../base/errors.ts';
import { request } from '../../platform/undici.ts';
import { parseJsonObject } from '../../wire/json.ts';
import { systemWorld } from '../../world/system-world.ts';
import { formatDuration } from '../terminal/quantities.ts';
import { Stage } from './stage.ts';
import { withTimeout } from './waiting.ts';

const ANSWER_MS_MAX = 30_000;

export interface NoMajority {
  readonly refusedMs: number;
  readonly code: string;
  readonly missing: readonly string[];
  readonly backMs: number;
  readonly ok: boolean;
}

/** Kills all servers but one, which must refuse and name the missing ones, in bounded time. */
export async function loseMajority(stage: Stage, say: (text: string) => void): Promise<NoMajority> {
  const [survivor, ...others] = stage.servers as [Stage['servers'][number], ...Stage['servers']];
  const names = others.map(({ plan }) => plan.id);
  say(`  kill -9 of ${names.join(' and ')}: only ${survivor.plan.id} is left`);
  await Promise.all(others.map((server) => server.kill()));
  const startMs = systemWorld.nowMs();
  const answer = await request(`${survivor.plan.url}/v1/files/${Stage.VOLUME}/nobody-can-have-this`, {
    method: 'PUT',
    body: 'x',
    signal: systemWorld.timeout(ANSWER_MS_MAX),
  });
  const problem = parseJsonObject(await answer.body.text());
  const refusedMs = Math.round(systemWorld.nowMs() - startMs);
  const code = isErrorCode(problem?.code) ? problem.code : `status ${answer.statusCode}`;
  const missing = Array.isArray(problem?.unreachable) ? problem.unreachable.map(String).sort() : [];
  say(
    `  PUT to ${survivor.plan.id}: ${answer.statusCode} ${code} after ${formatDuration(refusedMs)}, missing ${missing.join(', ')}`,
  );
  say('  nothing is acknowledged that a majority does not have, so there is nothing to lose');
  const restartMs = systemWorld.nowMs();
  const resumed = withTimeout(
    stage.probed[0]?.meter.afterMarks(1) ?? Promise.resolve(),
    'a write after the return of the majority',
  );
  await stage.restoreServers();
  await resumed;
  const backMs = Math.round(systemWorld.nowMs() - restartMs);
  say(
    `  both servers run again: writes continue, and all replicas are current after ${formatDuration(backMs)}`,
  );
  const ok =
    answer.statusCode === 503 && code === 'no-majority' && missing.join() === [...names].sort().join();
  return { refusedMs, code, missing, backMs, ok };
}
