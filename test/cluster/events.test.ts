import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { LiveResync, LiveState, ServerEvent } from '../../wire/live-api.ts';
import { StreamEventReader } from '../../wire/sse.ts';
import { runCli } from '../client/run-cli.ts';
import { ask, askJson, problemIn } from '../http/ask.ts';
import { RealCluster } from './real-cluster.ts';

const LONG_MS = 30_000;

/** A stream of events, read until it shows what a test waits for. */
class Watch {
  readonly happenings: ServerEvent[] = [];
  resyncs: LiveResync[] = [];
  lastId = '';
  readonly #url: string;

  constructor(base: string, query = '') {
    this.#url = `${base}/v1/events${query}`;
  }

  async until(found: (state: LiveState | null) => boolean, lastId?: string): Promise<LiveState | null> {
    const headers = lastId === undefined ? {} : { 'last-event-id': lastId };
    const signal = AbortSignal.timeout(LONG_MS);
    const response = await fetch(this.#url, { headers, signal });
    assert.equal(response.headers.get('content-type'), 'text/event-stream; charset=utf-8');
    try {
      return await this.#read(response.body as AsyncIterable<Uint8Array>, found);
    } catch (cause) {
      throw new Error(`It was not shown, only ${JSON.stringify(this.happenings)}`, { cause });
    }
  }

  async #read(
    body: AsyncIterable<Uint8Array>,
    found: (state: LiveState | null) => boolean,
  ): Promise<LiveState | null> {
    const reader = new StreamEventReader();
    const decoder = new TextDecoder();
    for await (const piece of body) {
      const text = decoder.decode(piece, { stream: true });
      this.lastId = [...text.matchAll(/^id: (.*)$/gm)].at(-1)?.[1] ?? this.lastId;
      for (const { event, data } of reader.push(text)) {
        const state = event === 'state' ? (JSON.parse(data) as LiveState) : null;
        if (event === 'resync') this.resyncs.push(JSON.parse(data) as LiveResync);
        if (event === 'happened') this.happenings.push(JSON.parse(data) as ServerEvent);
        if (found(state)) {
          return state;
        }
      }
    }
    throw new Error('The stream ended');
  }
}

describe('events of a cluster', () => {
  let cluster: RealCluster;
  let file = 0;

  before(async () => {
    // On a slow machine a file's lease may be released between two steps; then no lease ends with its server.
    cluster = await RealCluster.start({ flags: ['--lease-idle', '10m'] });
    const command = { kind: 'volume-create', name: 'main', replicas: 3, objectBytes: 131_072 };
    await ask(cluster.url('s1'), 'POST', '/v1/catalog/commands', {
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ session: 1, number: 1, command }),
    });
    assert.equal(
      (await ask(cluster.url('s1'), 'PUT', '/v1/files/main/greeting', { body: 'hello' })).status,
      201,
    );
    file = (await askJson<{ file: number }>(cluster.url('s1'), '/v1/info/main/greeting')).file;
  });
  after(() => cluster.stop());

  test('any server reports all servers, and the watched file', async () => {
    const watch = new Watch(cluster.url('s2'), '?watch=main:/greeting');
    const state = await watch.until((now) => {
      // Showing a file does not open it: it has no primary unless a client uses it.
      if (now?.file?.primary === null) void ask(cluster.url('s1'), 'GET', '/v1/info/main/greeting');
      const isWhole = now?.file?.replicas.every((replica) => replica.state === 'current') === true;
      return isWhole && now?.file?.primary !== null && now?.servers.every((one) => one.state === 'serving');
    });
    assert.deepEqual(
      state?.servers.map(({ id, url }) => [id, url]),
      ['s1', 's2', 's3'].map((id) => [id, cluster.url(id)]),
    );
    assert.equal(state?.file?.file, file);
    assert.equal(state?.file?.lease.holder, state?.file?.primary);
    assert.deepEqual(state?.file?.replicas.map(({ server, state: stands }) => `${server} ${stands}`).sort(), [
      's1 current',
      's2 current',
      's3 current',
    ]);
    assert.equal(watch.resyncs[0]?.server, 's2');
    assert.equal(
      watch.resyncs[0]?.control,
      undefined,
      'No process controls servers that were started by hand',
    );
  });

  test('writes and reads are counted at the servers that execute them', async () => {
    const before = await totals(cluster);
    const place = (number: number) => `/v1/data/${file}?offset=0&session=77&number=${number}&since=0`;
    const headers = { 'content-type': 'application/octet-stream' };
    for (let number = 1; number <= 5; number++) {
      assert.equal((await ask(cluster.url('s3'), 'PUT', place(number), { headers, body: 'x' })).status, 200);
      assert.equal((await ask(cluster.url('s3'), 'GET', `/v1/data/${file}?offset=0&length=1`)).status, 200);
    }
    const now = await totals(cluster);
    assert.deepEqual([now.writes - before.writes, now.reads - before.reads], [5, 5]);
  });

  test('an invalid request is refused with an error code', async () => {
    for (const path of ['/v1/events?watch=greeting', '/v1/events/self?after=-1', '/v1/events/self?files=a']) {
      const answer = await ask(cluster.url('s1'), 'GET', path);
      assert.equal(answer.status, 400, path);
      assert.equal(problemIn(answer).code, 'bad-request');
    }
  });

  test('a terminal shows the same events', async () => {
    const servers = ['--servers', cluster.urls.join()];
    const [events, top, unreachable] = await Promise.all([
      runCli(['events', '--json', ...servers]),
      runCli(['top', '--watch', 'main:/greeting', ...servers]),
      runCli(['top', '--servers', 'http://127.0.0.1:9']),
    ]);
    assert.deepEqual([events.code, top.code], [0, 0], events.stderr + top.stderr);
    const told = events.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as ServerEvent);
    for (const id of cluster.ids) {
      assert.ok(told.some(({ server, kind }) => server === id && kind === 'started'));
      assert.match(top.stdout, new RegExp(`^${id} +serving`, 'm'));
    }
    assert.match(top.stdout, /^main:\/greeting: primary (?:s[123]|none), epoch \d+, /m);
    assert.equal(unreachable.code, 5, 'The majority may return: its absence is not a final failure');
  });

  test('the death of a primary is reported as events, and a client that reconnects receives those that it missed', async () => {
    // The file needs a primary before one can die.
    assert.equal((await ask(cluster.url('s1'), 'GET', `/v1/data/${file}/state`)).status, 200);
    const primary = await cluster.primaryOf('main/greeting');
    const told = ['s1', 's2', 's3'].find((id) => id !== primary) as string;
    const watch = new Watch(cluster.url(told), '?watch=main:/greeting');
    // The file had a primary before, which is reported as well.
    const isAfterDeath = ({ kind, path, text }: ServerEvent): boolean =>
      kind === 'primary-elected' &&
      path === 'main:/greeting' &&
      text.includes(`the lease of ${primary} had ended`);
    let killed = false;
    const seen = watch.until((state) => {
      if (!killed && state !== null) {
        killed = true;
        void cluster.kill(primary);
        // A request for the file: without one, no primary is elected.
        void ask(cluster.url(told), 'GET', `/v1/data/${file}/state`);
      }
      return watch.happenings.some(isAfterDeath);
    });
    await seen;
    const silent = watch.happenings.filter(({ kind, about }) => kind === 'silent' && about === primary);
    assert.equal(silent.length, 1, 'Two servers noticed, and one of them is reported');
    const elected = watch.happenings.find(isAfterDeath);
    assert.match(
      elected?.text ?? '',
      new RegExp(
        `^s[123] became primary of \\{file\\} in epoch \\d+: the lease of ${primary} had ended \\d+ ms before`,
      ),
    );
    const again = new Watch(cluster.url(told));
    const [first] = watch.happenings;
    await again.until(
      () => again.happenings.some(({ id }) => id === elected?.id),
      watch.resyncs.length > 0 ? idBefore(watch, first) : '',
    );
    assert.equal(again.resyncs.length, 0, 'Missed events are kept');
    const anew = new Watch(cluster.url(told));
    await anew.until(() => anew.resyncs.length > 0, 'another.life.3');
    assert.ok(anew.resyncs[0]?.happenings.some(({ id }) => id === elected?.id));
  });
});

/** The id of the stream before all its events: its number is 0. */
function idBefore(watch: Watch, first: ServerEvent | undefined): string {
  assert.ok(first !== undefined);
  return watch.lastId.replace(/\d+$/, '0');
}

async function totals(cluster: RealCluster): Promise<{ writes: number; reads: number }> {
  const parts = await Promise.all(
    cluster.ids.map((id) => askJson<{ writes: number; reads: number }>(cluster.url(id), '/v1/events/self')),
  );
  return {
    writes: parts.reduce((sum, { writes }) => sum + writes, 0),
    reads: parts.reduce((sum, { reads }) => sum + reads, 0),
  };
}
