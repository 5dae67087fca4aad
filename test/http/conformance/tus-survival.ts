import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { Upload } from 'tus-js-client';
import type { RealCluster } from '../../cluster/real-cluster.ts';
import { ask, askJson } from '../ask.ts';

const CHUNK_BYTES = 512 * 1024;
const RETRY_DELAYS_MS = [100, 500, 1000, 2000, 3000];

/**
 * An upload continues after its client has disconnected, after its primary was killed, and after the server that
 * received it was killed: none of them has it only in memory.
 */
export async function uploadOutlivesServers(cluster: RealCluster): Promise<void> {
  const bytes = randomBytes(6 * CHUNK_BYTES + 12_345);
  const [first] = cluster.ids as [string];
  const upload = await someChunks(bytes, `${cluster.url(first)}/v1/files/main/`, null, 2);

  const inode = /(\d+)-[0-9a-f]+$/.exec(upload)?.[1];
  const { primary } = await askJson<{ primary: string }>(cluster.url(first), `/v1/data/${inode}/standing`);
  await cluster.kill(primary);
  const second = cluster.ids.find((id) => id !== primary) as string;
  await someChunks(bytes, cluster.url(second), upload, 2);

  await cluster.restart(primary);
  await cluster.ready();
  await cluster.kill(second);
  const third = cluster.ids.find((id) => id !== second) as string;
  const hidden = await ask(cluster.url(third), 'GET', '/v1/files/main/outlived');
  assert.equal(hidden.status, 404, 'It is not visible before it is complete');
  await someChunks(bytes, cluster.url(third), upload, Infinity);
  const answer = await ask(cluster.url(third), 'GET', '/v1/files/main/outlived');
  assert.ok(answer.bytes.equals(bytes), `${answer.bytes.length} bytes, and others`);
  await cluster.restart(second);
}

/**
 * Each time a new client, as after a crash.
 *
 * @param base where to begin, or where to continue with `upload`
 * @param count of chunks after which the client disconnects
 * @returns the path of the upload's URL
 */
async function someChunks(
  bytes: Buffer,
  base: string,
  upload: string | null,
  count: number,
): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let left = count;
  const client = new Upload(bytes, {
    ...(upload === null ? { endpoint: base } : { uploadUrl: `${base}${upload}` }),
    metadata: { filename: 'outlived' },
    chunkSize: CHUNK_BYTES,
    retryDelays: RETRY_DELAYS_MS,
    onChunkComplete: () => {
      if (--left === 0) void client.abort().then(resolve, reject);
    },
    onSuccess: () => resolve(),
    onError: reject,
  });
  client.start();
  await promise;
  assert.ok(client.url !== null, 'The upload has a URL');
  return new URL(client.url).pathname;
}
