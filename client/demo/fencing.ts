import { request } from '../../platform/undici.ts';
import { type FileState, HEADER_FORWARDED } from '../../wire/http-api.ts';
import { parseJsonObject } from '../../wire/json.ts';
import { systemWorld } from '../../world/system-world.ts';
import { formatDuration } from '../terminal/quantities.ts';
import { drawSession } from '../transport/request-window.ts';
import { Stage } from './stage.ts';

const PATH = '/fenced';
const BEFORE = 'before the sleep';
const FROM_SLEEPER = 'OF THE SLEEPER!!';
const AFTER = 'of the new one!!';
const ANSWER_MS_MAX = 60_000;

export interface Fencing {
  readonly paused: string;
  readonly newPrimary: string;
  readonly epochBefore: number;
  readonly epochAfter: number;
  readonly waitedMs: number;
  readonly answer: string;
  readonly ok: boolean;
}

/**
 * A primary is suspended with a write in its socket. Meanwhile another server becomes primary; when the old one wakes
 * up, it must not execute that write, although no message has reported the loss of its lease.
 */
export async function resumeOldPrimary(stage: Stage, say: (text: string) => void): Promise<Fencing> {
  const file = await stage.createFile(PATH);
  const handle = stage.client.openFile(file);
  await handle.write(0, Buffer.from(BEFORE));
  const old = await stage.primaryOf(PATH);
  const before = await stateOf(old.plan.url, file);
  say(
    `  ${old.plan.id} is the primary of ${PATH} in epoch ${before.epoch}: SIGSTOP, as if its machine slept`,
  );
  old.pause();
  // It waits in the suspended server's socket, with a request not to forward it.
  const late = request(
    `${old.plan.url}/v1/data/${file}?offset=0&session=${drawSession(systemWorld)}&number=1&since=${before.seq}`,
    {
      method: 'PUT',
      headers: { 'content-type': 'application/octet-stream', [HEADER_FORWARDED]: '1' },
      body: FROM_SLEEPER,
      signal: systemWorld.timeout(ANSWER_MS_MAX),
    },
  );
  late.catch(() => undefined);
  const startMs = systemWorld.nowMs();
  await handle.write(0, Buffer.from(AFTER));
  const waitedMs = Math.round(systemWorld.nowMs() - startMs);
  const next = await stage.primaryOf(PATH);
  const after = await stateOf(next.plan.url, file);
  say(
    `  a write waited ${formatDuration(waitedMs)} for the lease to end; ${next.plan.id} is primary in epoch ${after.epoch}`,
  );
  old.resume();
  const response = await late;
  const problem = parseJsonObject(await response.body.text());
  const answer = `${response.statusCode} ${String(problem?.code ?? '')}`.trim();
  say(`  ${old.plan.id} resumes, and answers the write that it received while suspended: ${answer}`);
  await stage.restoreServers();
  const contents = await Promise.all(stage.servers.map(({ plan }) => contentsOf(plan.url)));
  const isKept = contents.every((text) => text === AFTER);
  say(
    isKept
      ? `  every server has what ${next.plan.id} acknowledged, and not the late write of ${old.plan.id}`
      : `  WRONG: the servers have ${contents.map((text) => JSON.stringify(text)).join(', ')}`,
  );
  return {
    paused: old.plan.id,
    newPrimary: next.plan.id,
    epochBefore: before.epoch,
    epochAfter: after.epoch,
    waitedMs,
    answer,
    ok: isKept && response.statusCode >= 400 && after.epoch > before.epoch,
  };
}

async function stateOf(url: string, file: number): Promise<FileState> {
  const answer = await request(`${url}/v1/data/${file}/state`);
  return (await answer.body.json()) as FileState;
}

async function contentsOf(url: string): Promise<string> {
  const answer = await request(`${url}/v1/files/${Stage.VOLUME}${PATH}`);
  return answer.body.text();
}
