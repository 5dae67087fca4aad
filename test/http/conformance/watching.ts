import assert from 'node:assert/strict';
import { request as httpRequest } from 'node:http';
import { StreamEventReader } from '../../../wire/sse.ts';
import type { RealCluster } from '../../cluster/real-cluster.ts';
import { ask } from '../ask.ts';

interface Told {
  readonly event: string;
  readonly data: { readonly change?: string; readonly path?: string; readonly kind?: string };
  /** What a client that has received this event, and no later one, reconnects with. */
  readonly lastId: string;
}

/** A stream of events that is being read. */
class Stream {
  readonly #told: Told[] = [];
  readonly #waiting: ((told: Told) => void)[] = [];
  readonly #request: ReturnType<typeof httpRequest>;
  /** Of the last change that was taken. */
  lastId = '';

  constructor(base: string, path: string, headers: Readonly<Record<string, string>> = {}) {
    const reader = new StreamEventReader();
    let rest = '';
    let lastId = headers['last-event-id'] ?? '';
    this.#request = httpRequest(`${base}${path}`, { headers }, (response) => {
      response.setEncoding('utf8');
      response.on('data', (text: string) => {
        const blocks = (rest + text).split('\n\n');
        rest = blocks.pop() ?? '';
        for (const block of blocks) {
          lastId = /^id: (\d+)$/m.exec(block)?.[1] ?? lastId;
          for (const { event, data } of reader.push(`${block}\n\n`))
            this.#push({ event, data: JSON.parse(data), lastId });
        }
      });
    });
    this.#request.on('error', () => {});
    this.#request.end();
  }

  async next(): Promise<Told> {
    return this.#told.shift() ?? new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** The next change, in one line. */
  async change(): Promise<string> {
    const { event, data, lastId } = await this.next();
    assert.equal(event, 'change');
    this.lastId = lastId;
    return `${data.change} ${data.path} ${data.kind ?? '-'}`;
  }

  close(): void {
    this.#request.destroy();
  }

  #push(told: Told): void {
    const waiting = this.#waiting.shift();
    if (waiting === undefined) this.#told.push(told);
    else waiting(told);
  }
}

const path = (name: string): string => `/v1/files/main/${name}`;

/** Any server reports every change of names, in their order; a watch that continues misses and repeats none. */
export async function watchersAreTold(cluster: RealCluster): Promise<void> {
  const [first = '', second = '', third = ''] = cluster.urls;
  await ask(first, 'PUT', path('w/sub/?parents=true'));
  const flat = new Stream(first, path('w/?watch'));
  const deep = new Stream(second, path('w/?watch&recursive=true'));
  for (const stream of [flat, deep]) assert.equal((await stream.next()).event, 'ready');

  const { headers } = await ask(third, 'PUT', path('w/a'), { body: '1' });
  await ask(first, 'PUT', path('w/a'), { body: '2' });
  await ask(second, 'PUT', path('w/sub/b'), { body: '3' });
  await ask(third, 'POST', path('w/a?move-to=/w/sub/c'));
  await ask(third, 'PUT', path('w/refused'), { body: '4', headers: { 'if-match': String(headers.etag) } });
  await ask(first, 'DELETE', path('w/sub/?recursive=true'));
  const ofDirectory = ['created a file', 'replaced a file', 'removed a file'];
  for (const line of ofDirectory) assert.match(await flat.change(), new RegExp(`^${line.slice(0, -5)}`));
  assert.match(await flat.change(), /^removed sub/);
  const below: string[] = [];
  while (!below.at(-1)?.startsWith('removed sub ')) below.push(await deep.change());
  assert.deepEqual(below.map((line) => line.split(' ').slice(0, 2).join(' ')).slice(0, 5), [
    'created a',
    'replaced a',
    'created sub/b',
    'removed a',
    'created sub/c',
  ]);

  const before = deep.lastId;
  deep.close();
  await ask(first, 'PUT', path('w/missed'), { body: '5' });
  const again = new Stream(third, path('w/?watch&recursive=true'), { 'last-event-id': before });
  assert.equal((await again.next()).event, 'ready');
  assert.match(await again.change(), /^created missed file$/);
  // The changes in one answer of the catalog are received in part, and requested again.
  for (const name of ['one', 'two', 'three']) await ask(first, 'PUT', path(`w/${name}`), { body: '6' });
  const half = new Stream(third, path('w/?watch'), { 'last-event-id': again.lastId });
  assert.equal((await half.next()).event, 'ready');
  assert.match(await half.change(), /^created one file$/);
  half.close();
  const whole = new Stream(second, path('w/?watch'), { 'last-event-id': half.lastId });
  assert.equal((await whole.next()).event, 'ready');
  for (const name of ['one', 'two', 'three'])
    assert.match(await whole.change(), new RegExp(`^created ${name} file$`));
  const lost = new Stream(third, path('w/?watch'), { 'last-event-id': '9007199254740991' });
  assert.equal((await lost.next()).event, 'resync');
  for (const stream of [flat, again, whole, lost]) stream.close();
}

/** A watch continues when the catalog's primary dies: the next one reports the changes, and none is missed. */
export async function watchOutlivesPrimary(cluster: RealCluster): Promise<void> {
  const { catalog } = await cluster.status(cluster.ids[0] as string);
  const primary = catalog.primary as string;
  const [watched = '', writer = ''] = cluster.ids.filter((id) => id !== primary);
  await ask(cluster.url(watched), 'PUT', path('v/'));
  const stream = new Stream(cluster.url(watched), path('v/?watch'));
  assert.equal((await stream.next()).event, 'ready');
  await ask(cluster.url(writer), 'PUT', path('v/before'), { body: '1' });
  await cluster.kill(primary);
  const stored = await ask(cluster.url(writer), 'PUT', path('v/after'), { body: '2' });
  assert.equal(stored.status, 201, stored.text);
  assert.equal(await stream.change(), 'created before file');
  assert.equal(await stream.change(), 'created after file');
  await ask(cluster.url(writer), 'DELETE', path('v/?recursive=true'));
  const removed = [await stream.change(), await stream.change()].map((line) =>
    line.split(' ').slice(0, 2).join(' '),
  );
  assert.deepEqual(removed.sort(), ['removed after', 'removed before']);
  assert.equal((await stream.next()).event, 'gone');
  stream.close();
  await cluster.restart(primary);
  await cluster.ready();
}
