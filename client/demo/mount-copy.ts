import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';
import { request } from '../../platform/undici.ts';
import { systemWorld } from '../../world/system-world.ts';
import { Stage } from './stage.ts';

const BYTES = 8 * 1024 * 1024;
const PIECE_BYTES = 128 * 1024;

export interface MountCopy {
  readonly bytes: number;
  readonly tookMs: number;
  readonly equal: boolean;
}

/** Copies a file into the mount as any program would, including `fsync`. */
export async function copyIn(
  mount: string,
  name: string,
): Promise<{ readonly tookMs: number; readonly digest: string }> {
  const contents = systemWorld.randomBytes(BYTES);
  const startMs = systemWorld.nowMs();
  const file = await open(`${mount}/${name}`, 'wx');
  try {
    for (let at = 0; at < BYTES; at += PIECE_BYTES) await file.write(contents, at, PIECE_BYTES, at);
    await file.sync();
  } finally {
    await file.close();
  }
  return { tookMs: Math.round(systemWorld.nowMs() - startMs), digest: digestOf(contents) };
}

export async function compareCopy(
  { servers }: Stage,
  name: string,
  { tookMs, digest }: { readonly tookMs: number; readonly digest: string },
): Promise<MountCopy> {
  const living = servers.filter(({ state }) => state === 'running');
  const copies = await Promise.all(
    living.map(async ({ plan }) => {
      const answer = await request(`${plan.url}/v1/files/${Stage.VOLUME}/${name}`);
      return digestOf(await answer.body.bytes());
    }),
  );
  return { bytes: BYTES, tookMs, equal: copies.every((copy) => copy === digest) };
}

function digestOf(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}
