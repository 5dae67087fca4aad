import { request } from '../../platform/undici.ts';
import { HEADER_AGE } from '../../wire/http-api.ts';
import { systemWorld } from '../../world/system-world.ts';

const PAUSE_MS = 20;
const LENGTH = 256;
const ANSWER_MS_MAX = 10_000;

export interface StaleReads {
  readonly count: number;
  readonly failed: number;
  readonly slowestMs: number;
  readonly oldestMs: number;
}

/** Reads with `consistency=stale` from all `urls` in turn until `until` is settled: they wait for no election. */
export async function readMeanwhile(
  file: number,
  urls: readonly string[],
  until: Promise<unknown>,
): Promise<StaleReads> {
  let isOver = false;
  const end = () => {
    isOver = true;
  };
  until.then(end, end);
  const reads = { count: 0, failed: 0, slowestMs: 0, oldestMs: 0 };
  for (let index = 0; !isOver; index++) {
    const startMs = systemWorld.nowMs();
    const { statusCode, headers, body } = await request(
      `${urls[index % urls.length]}/v1/data/${file}?offset=0&length=${LENGTH}&consistency=stale`,
      { signal: systemWorld.timeout(ANSWER_MS_MAX) },
    );
    await body.dump();
    const tookMs = systemWorld.nowMs() - startMs;
    if (statusCode === 200) reads.count++;
    else reads.failed++;
    reads.slowestMs = Math.max(reads.slowestMs, Math.round(tookMs));
    const ageMs = Number(headers[HEADER_AGE]);
    if (Number.isFinite(ageMs)) reads.oldestMs = Math.max(reads.oldestMs, Math.round(ageMs));
    // The pace of the reader, not a wait for something.
    await systemWorld.sleep(PAUSE_MS);
  }
  return reads;
}
