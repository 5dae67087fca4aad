import { readFile } from 'node:fs/promises';
import { request } from '../../platform/undici.ts';
import { systemWorld } from '../../world/system-world.ts';
import { generalFailure, isSystemError } from '../terminal/failure.ts';
import { type Damage, damageSum, NO_DAMAGE } from './ledger.ts';
import type { Load } from './load.ts';

const ANSWER_TIMEOUT_MS = 30_000;
const MOUNT_STALE_MS = 5_000;
const RETRY_MS = 200;

export interface Comparison {
  readonly damage: Damage;
  readonly bytes: number;
}

/** Compares all copies of the files: they must have the same bytes, namely those that were acknowledged. */
export async function compareAll(
  loads: readonly Load[],
  volume: string,
  urls: readonly string[],
  mount: string | null,
  say: (text: string) => void,
): Promise<Comparison> {
  let damage = NO_DAMAGE;
  let bytes = 0;
  for (const load of loads) {
    const copies: { readonly where: string; readonly contents: Uint8Array }[] = [];
    for (const url of urls)
      copies.push({ where: url, contents: await fetchWhole(`${url}/v1/files/${volume}${load.path}`) });
    const reference = (copies[0] as (typeof copies)[number]).contents;
    if (mount !== null) {
      const contents = await readMounted(`${mount}${load.path}`, reference);
      copies.push({ where: 'the mount', contents });
    }
    for (const { where, contents } of copies) {
      bytes += contents.length;
      if (Buffer.compare(contents, reference) === 0) continue;
      say(`corrupt: ${load.path} read from ${where} differs from ${copies[0]?.where}`);
      damage = damageSum(damage, { ...NO_DAMAGE, corrupt: 1 });
    }
    const found = load.compare(reference);
    if (found.lost + found.duplicated + found.corrupt > 0) {
      say(`${load.path}: ${found.lost} lost, ${found.duplicated} duplicated, ${found.corrupt} corrupt`);
    }
    damage = damageSum(damage, found);
  }
  return { damage, bytes };
}

async function fetchWhole(url: string): Promise<Uint8Array> {
  const deadlineMs = systemWorld.nowMs() + ANSWER_TIMEOUT_MS;
  for (;;) {
    const answer = await request(url, { signal: systemWorld.timeout(ANSWER_TIMEOUT_MS) });
    const contents = await answer.body.bytes();
    if (answer.statusCode === 200) return contents;
    if (answer.statusCode !== 503 || systemWorld.nowMs() > deadlineMs) {
      throw generalFailure(`Cannot read ${url} for the comparison: HTTP status ${answer.statusCode}`);
    }
    await systemWorld.sleep(RETRY_MS);
  }
}

/** Reads until the contents are as expected, or late: a mount may show state of a second ago for a moment. */
async function readMounted(path: string, expected: Uint8Array): Promise<Uint8Array> {
  const deadlineMs = systemWorld.nowMs() + MOUNT_STALE_MS;
  for (;;) {
    try {
      const contents = await readFile(path);
      if (Buffer.compare(contents, expected) === 0 || systemWorld.nowMs() > deadlineMs) return contents;
    } catch (error) {
      if (!isSystemError(error) || systemWorld.nowMs() > deadlineMs) throw error;
    }
    await systemWorld.sleep(RETRY_MS);
  }
}
