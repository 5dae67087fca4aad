/**
 * Goal: a file of any size goes up and comes down through one server with flat memory.
 * Method: bytes that are made on the way, a digest of both ways, and the largest resident size of each server meanwhile.
 *
 * `npm run large -- [MiB]` plays it with 5 GiB against servers of its own; the directory of temporary files needs three times as much.
 */
import assert from 'node:assert/strict';
import { createCipheriv, createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { performance } from 'node:perf_hooks';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { RealCluster } from '../../cluster/real-cluster.ts';

const MIB = 1024 * 1024;
const LOOK_MS = 100;

export interface LargeFileReport {
  readonly mebibytes: number;
  readonly upSeconds: number;
  readonly downSeconds: number;
  /** By server, in MiB: before, and the most during both ways. */
  readonly memory: Readonly<Record<string, { readonly before: number; readonly most: number }>>;
}

/** @returns what it took; the bytes that came back are those that went */
export async function largeFile(
  cluster: RealCluster,
  volume: string,
  mebibytes: number,
): Promise<LargeFileReport> {
  const [up = '', down = ''] = cluster.urls;
  const before = residents(cluster);
  const most = new Map(before);
  const watch = setInterval(() => {
    for (const [id, mib] of residents(cluster)) most.set(id, Math.max(mib, most.get(id) ?? 0));
  }, LOOK_MS);
  try {
    const sent = createHash('sha256');
    const begunMs = performance.now();
    await upload(`${up}/v1/files/${volume}/large`, mebibytes, sent);
    const halfMs = performance.now();
    const received = createHash('sha256');
    const bytes = await download(`${down}/v1/files/${volume}/large`, received);
    const endMs = performance.now();
    assert.equal(bytes, mebibytes * MIB);
    assert.equal(received.digest('hex'), sent.digest('hex'), 'What came back is what went');
    return {
      mebibytes,
      upSeconds: (halfMs - begunMs) / 1000,
      downSeconds: (endMs - halfMs) / 1000,
      memory: Object.fromEntries(
        [...before].map(([id, mib]) => [id, { before: mib, most: most.get(id) ?? mib }]),
      ),
    };
  } finally {
    clearInterval(watch);
  }
}

/** Noise that costs little: nobody may find the same object twice, or squeeze it. */
function* noise(mebibytes: number): Generator<Buffer> {
  const cipher = createCipheriv('aes-128-ctr', randomBytes(16), randomBytes(16));
  const zeros = Buffer.alloc(MIB);
  for (let count = 0; count < mebibytes; count++) yield cipher.update(zeros);
}

async function upload(url: string, mebibytes: number, hash: ReturnType<typeof createHash>): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const request = httpRequest(url, {
    method: 'PUT',
    headers: { 'content-length': String(mebibytes * MIB) },
  });
  request.on('response', resolve).on('error', reject);
  const body = Readable.from(noise(mebibytes));
  body.on('data', (bytes: Buffer) => hash.update(bytes));
  await pipeline(body, request);
  const response = await promise;
  response.resume();
  assert.ok([201, 204].includes(response.statusCode ?? 0), `The upload ended with ${response.statusCode}`);
}

async function download(url: string, hash: ReturnType<typeof createHash>): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  httpRequest(url).on('response', resolve).on('error', reject).end();
  const response = await promise;
  assert.equal(response.statusCode, 200);
  let length = 0;
  for await (const bytes of response) {
    hash.update(bytes as Buffer);
    length += (bytes as Buffer).length;
  }
  return length;
}

/** Resident size of each server, in MiB. */
function residents(cluster: RealCluster): Map<string, number> {
  return new Map(
    cluster.ids.map((id) => {
      const [, kib = '0'] =
        /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${cluster.pid(id)}/status`, 'utf8')) ?? [];
      return [id, Math.round(Number(kib) / 1024)];
    }),
  );
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const mebibytes = Number(process.argv[2] ?? 5 * 1024);
  assert.ok(Number.isSafeInteger(mebibytes) && mebibytes > 0, 'A number of MiB');
  const cluster = await RealCluster.start();
  try {
    await cluster.createVolume('main');
    console.log(JSON.stringify(await largeFile(cluster, 'main', mebibytes), null, 2));
  } finally {
    await cluster.stop();
  }
}
