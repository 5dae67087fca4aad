import assert from 'node:assert/strict';
import type { RealCluster } from '../../cluster/real-cluster.ts';
import { type Answer, ask } from '../ask.ts';

/**
 * A request with a key that is sent again, to another server and after its primary was killed, gets the same answer and
 * is not executed again: the file's primary remembers writes, the catalog's the changes of names.
 */
export async function keysOutliveServers(cluster: RealCluster): Promise<void> {
  const [first = ''] = cluster.ids;
  const send = (id: string, method: string, target: string, key: string, body?: string): Promise<Answer> =>
    ask(cluster.url(id), method, `/v1/files/main/${target}`, {
      headers: { 'idempotency-key': key },
      ...(body === undefined ? {} : { body }),
    });
  await ask(cluster.url(first), 'PUT', '/v1/files/main/keyed', { body: 'a' });
  const requests = [
    ['PATCH', 'keyed?append', 'append', 'b'],
    ['PUT', 'stored', 'store', 'c'],
    ['POST', 'keyed?copy-to=/copied&overwrite=false', 'copy'],
    ['POST', 'stored?move-to=/moved&overwrite=false', 'move'],
  ] as const;
  const before: Answer[] = [];
  for (const [method, target, key, body] of requests)
    before.push(await send(first, method, target, key, body));
  assert.deepEqual(
    before.map(({ status }) => status),
    [204, 201, 201, 204],
  );

  const primary = (await cluster.info(first, 'main/keyed')).primary as string;
  await cluster.kill(primary);
  const other = cluster.ids.find((id) => id !== primary) as string;
  for (const [index, [method, target, key, body]] of requests.entries()) {
    const again = await send(other, method, target, key, body);
    assert.equal(again.status, before[index]?.status, `${method} ${target}: ${again.text}`);
    assert.equal(again.headers.etag, before[index]?.headers.etag, `${method} ${target}`);
  }
  const contents = await Promise.all(
    ['keyed', 'copied', 'moved'].map((name) => ask(cluster.url(other), 'GET', `/v1/files/main/${name}`)),
  );
  assert.deepEqual(
    contents.map(({ text }) => text),
    ['ab', 'ab', 'c'],
  );
  await cluster.restart(primary);
  await cluster.ready();
}
