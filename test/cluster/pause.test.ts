import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { FileState, Problem } from '../../wire/http-api.ts';
import { type Answer, ask } from '../http/ask.ts';
import { isLong } from '../long.ts';
import { RealCluster, until } from './real-cluster.ts';

const LEASE_MS = 2_000;
const BLOCK_BYTES = 4096;

const cluster = await RealCluster.start({ lease: `${LEASE_MS}ms` });
after(() => cluster.stop());
await cluster.createVolume('main');

const FORWARDED = { 'leasehold-forwarded': '1' };

interface Sent {
  readonly what: string;
  readonly answer: Promise<Answer | Error>;
}

function send(
  url: string,
  what: string,
  method: string,
  path: string,
  headers: Record<string, string> = {},
  body?: Buffer,
): Sent {
  const options = body === undefined ? { headers } : { headers, body };
  const answer = ask(url, method, path, options).catch((error: unknown) => {
    if (error instanceof Error) return error;
    throw error;
  });
  return { what, answer };
}

const block = (text: string): Buffer => Buffer.from(text.padEnd(BLOCK_BYTES, '.'));

async function command(url: string, body: object): Promise<Answer> {
  const session = Math.floor(Math.random() * 2 ** 50) + 1;
  return ask(url, 'POST', '/v1/catalog/commands', {
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ session, number: 1, command: body }),
  });
}

/** An answer of a paused primary: it comes at best from a later epoch, and then it shows the new contents. */
function judgeRead(sent: string, answer: Answer, oldEpoch: number): void {
  if (answer.status === 200 || answer.status === 206) {
    assert.equal(answer.text.slice(0, 3), 'new', `${sent} returned contents of an ended lease`);
    assert.ok(Number(answer.headers['leasehold-epoch']) > oldEpoch, `${sent} was answered on an ended lease`);
    return;
  }
  assert.ok(answer.status === 421 || answer.status === 503, `${sent}: ${answer.status} ${answer.text}`);
}

for (const round of isLong ? [1, 2] : [1]) {
  test(`a primary that was paused beyond its lease does not act by it (${round})`, async (t) => {
    const name = `paused-${round}`;
    const created = await ask(cluster.url('s1'), 'PUT', `/v1/files/main/${name}`, { body: block('old') });
    assert.equal(created.status, 201, created.text);
    const before = await cluster.info('s1', `main/${name}`);
    const { file, epoch: oldEpoch } = before;
    const old = await cluster.primaryOf(`main/${name}`);
    const survivor = cluster.ids.find((id) => id !== old) as string;
    const [url, survivorUrl] = [cluster.url(old), cluster.url(survivor)];
    const data = `/v1/data/${file}`;
    const read = `${data}?offset=0&length=${BLOCK_BYTES}`;
    const state = JSON.parse((await ask(url, 'GET', `${data}/state`)).text) as FileState;
    assert.equal(state.primary, old);
    let session = 1_000 * round;
    const writeTo = (text: string): [string, Buffer] => [
      `${data}?offset=${BLOCK_BYTES}&session=${++session}&number=1&since=${state.seq}`,
      block(text),
    ];
    /** Reads and writes, for the paused server itself (as if a peer had forwarded them) and through it. */
    const volley = (when: string): { reads: Sent[]; writes: Sent[] } => ({
      reads: [
        send(url, `a read ${when}, for itself`, 'GET', read, FORWARDED),
        send(url, `a read ${when}`, 'GET', read),
        // Of a few bytes, which are one read: a longer GET breaks off if the file is written meanwhile.
        send(url, `a GET ${when}`, 'GET', `/v1/files/main/${name}`, { range: 'bytes=0-2' }),
      ],
      writes: [true, false].map((itself) => {
        const what = `a write ${when}${itself ? ', for itself' : ''}`;
        const [path, body] = writeTo(what);
        return send(url, what, 'PUT', path, itself ? FORWARDED : {}, body);
      }),
    });

    const warm = await ask(url, 'GET', read, { headers: FORWARDED });
    assert.equal(warm.text.slice(0, 3), 'old');
    cluster.signal(old, 'SIGSTOP');
    const stoppedMs = performance.now();
    const queued = volley('queued in the pause');
    let taken: FileState | null = null;
    await until('another server has taken over and written', async () => {
      const path = `${data}?offset=0&session=${500 + round}&number=1&since=${state.seq}`;
      const answer = await ask(survivorUrl, 'PUT', path, { body: block('new') });
      if (answer.status !== 200) return false;
      taken = JSON.parse(answer.text) as FileState;
      return true;
    });
    assert.ok(taken !== null);
    const { primary, epoch } = taken as FileState;
    t.diagnostic(`${old} paused; ${primary} wrote ${Math.round(performance.now() - stoppedMs)} ms later`);
    assert.notEqual(primary, old);
    assert.ok(epoch > oldEpoch, `Epoch ${epoch} follows ${oldEpoch}`);
    cluster.signal(old, 'SIGCONT');
    const volleys = [queued, volley('sent right after')];

    for (const { reads, writes } of volleys) {
      for (const { what, answer: promised } of reads) {
        const answer = await promised;
        if (answer instanceof Error) throw new Error(`${what} was not answered`, { cause: answer });
        t.diagnostic(`${what}: ${answer.status} ${answer.text.slice(0, answer.status < 400 ? 3 : 400)}`);
        judgeRead(what, answer, oldEpoch);
      }
      for (const { what, answer: promised } of writes) {
        const answer = await promised;
        if (answer instanceof Error) throw new Error(`${what} was not answered`, { cause: answer });
        const said = answer.status === 200 ? '' : (JSON.parse(answer.text) as Problem).code;
        t.diagnostic(`${what}: ${answer.status} ${said}`);
        if (answer.status === 200) {
          const written = JSON.parse(answer.text) as FileState;
          assert.ok(written.epoch > oldEpoch, `${what} was acknowledged on an ended lease`);
        } else {
          assert.ok(
            answer.status === 421 || answer.status === 503,
            `${what}: ${answer.status} ${answer.text}`,
          );
        }
      }
    }
    await until('the paused server is a current backup', async () => {
      const { replicas } = await cluster.info(survivor, `main/${name}`);
      return replicas.length === 3 && replicas.every(({ state: standing }) => standing === 'current');
    });
    const contents = await Promise.all(
      cluster.ids.map((id) => ask(cluster.url(id), 'GET', `/v1/files/main/${name}`)),
    );
    for (const answer of contents) {
      assert.equal(answer.status, 200);
      assert.equal(answer.text.slice(0, 3), 'new');
      assert.ok(answer.bytes.equals((contents[0] as Answer).bytes), 'All servers return the same');
    }
  });
}

test('a primary of the catalog that was paused beyond its lease does not return old names', async (t) => {
  const created = await ask(cluster.url('s1'), 'PUT', '/v1/files/main/before', { body: 'x' });
  assert.equal(created.status, 201);
  const { primary: old } = (await cluster.status('s1')).catalog;
  assert.ok(old !== null);
  const url = cluster.url(old);
  const survivor = cluster.ids.find((id) => id !== old) as string;
  const query = {
    headers: { 'content-type': 'application/json', ...FORWARDED },
    body: JSON.stringify({ query: { kind: 'resolve', volume: 'main', path: '/before', follow: true } }),
  };
  assert.equal((await ask(url, 'POST', '/v1/catalog/queries', query)).status, 200);
  cluster.signal(old, 'SIGSTOP');
  const queued = [ask(url, 'POST', '/v1/catalog/queries', query), ask(url, 'HEAD', '/v1/files/main/before')];
  for (const one of queued) one.catch(() => undefined);
  await until('another server has renamed it', async () => {
    const [from, to] = ['/before', '/after'].map((path) => ({ volume: 'main', path }));
    const answer = await command(cluster.url(survivor), { kind: 'rename', from, to, mode: 'replace' });
    // An earlier attempt with unknown outcome may have executed it.
    return answer.status === 200 || answer.status === 404;
  });
  cluster.signal(old, 'SIGCONT');
  const answers = [...queued, ask(url, 'POST', '/v1/catalog/queries', query)];
  for (const promised of answers) {
    const answer = await promised;
    t.diagnostic(`asked for the old name: ${answer.status} ${answer.text.slice(0, 120)}`);
    assert.ok([404, 421, 503].includes(answer.status), `${answer.status} ${answer.text}`);
  }
  await cluster.ready();
  assert.equal((await ask(url, 'GET', '/v1/files/main/after')).text, 'x');
  assert.equal((await ask(url, 'GET', '/v1/files/main/before')).status, 404);
});
