import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { request as httpRequest } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { type Answer, ask } from '../ask.ts';

/** What holds for concurrent requests, each at another server. */
type Servers = readonly string[];

const path = (name: string): string => `/v1/files/main/${name}`;
const serverOf = (servers: Servers, index: number): string => servers[index % servers.length] as string;
const statuses = (answers: readonly Answer[]): number[] => answers.map(({ status }) => status).sort();

/** Of many requests that create a name, one has created it. */
export async function oneCreates(servers: Servers, count: number): Promise<void> {
  const answers = await Promise.all(
    Array.from({ length: count }, (_, index) =>
      ask(serverOf(servers, index), 'PUT', path('contested'), {
        headers: { 'if-none-match': '*' },
        body: `mine ${index}`,
      }),
    ),
  );
  assert.deepEqual(statuses(answers), [201, ...Array.from({ length: count - 1 }, () => 412)]);
  const winner = answers.findIndex(({ status }) => status === 201);
  assert.equal((await ask(serverOf(servers, 0), 'GET', path('contested'))).text, `mine ${winner}`);
}

/** A counter by compare and swap loses no step, whether it is replaced or written in place. */
export async function counterCounts(servers: Servers, clients: number, steps: number): Promise<void> {
  await ask(serverOf(servers, 0), 'PUT', path('counter'), { body: '00000' });
  const client = async (index: number): Promise<void> => {
    for (let done = 0; done < steps; ) {
      const base = serverOf(servers, index + done);
      const { text, headers } = await ask(base, 'GET', path('counter'));
      const inPlace = (index + done) % 2 === 1;
      const next = String(Number(text) + 1).padStart(5, '0');
      const { status } = await ask(
        base,
        inPlace ? 'PATCH' : 'PUT',
        path(inPlace ? 'counter?offset=0' : 'counter'),
        { headers: { 'if-match': String(headers.etag) }, body: next },
      );
      if (status === 204) done++;
      else assert.equal(status, 412);
    }
  };
  await Promise.all(Array.from({ length: clients }, (_, index) => client(index)));
  const { text } = await ask(serverOf(servers, 1), 'GET', path('counter'));
  assert.equal(Number(text), clients * steps);
}

/** Of the requests that replace, write and remove the same version, one succeeds. */
export async function oneChanges(servers: Servers, rounds: number): Promise<void> {
  const kinds = ['PUT', 'PATCH', 'DELETE'];
  for (let round = 0; round < rounds; round++) {
    const { headers } = await ask(serverOf(servers, round), 'PUT', path('single'), { body: 'x' });
    const ifMatch = { 'if-match': String(headers.etag) };
    const answers = await Promise.all(
      [...kinds, ...kinds].map((method, index) =>
        ask(
          serverOf(servers, index),
          method,
          path(method === 'PATCH' ? 'single?append' : 'single'),
          method === 'DELETE' ? { headers: ifMatch } : { headers: ifMatch, body: method },
        ),
      ),
    );
    assert.deepEqual(statuses(answers), [204, 412, 412, 412, 412, 412], `round ${round}`);
  }
}

/** Every append exists once, whole. */
export async function appendsAdd(servers: Servers, count: number): Promise<void> {
  await ask(serverOf(servers, 0), 'PUT', path('log'), { body: '' });
  const lines = Array.from({ length: count }, (_, index) => `line ${index} ${'.'.repeat(index * 7)}|\n`);
  const answers = await Promise.all(
    lines.map((body, index) => ask(serverOf(servers, index), 'PATCH', path('log?append'), { body })),
  );
  assert.deepEqual(new Set(statuses(answers)), new Set([204]));
  const { text } = await ask(serverOf(servers, 2), 'GET', path('log'));
  assert.deepEqual(text.split('\n').sort(), ['', ...lines.map((line) => line.trimEnd())].sort());
  for (const [index, { headers }] of answers.entries()) {
    const at = Number(headers['leasehold-offset']);
    assert.equal(text.slice(at, at + (lines[index]?.length ?? 0)), lines[index]);
  }
}

const VERSION_BYTES = 300_000;
/** Readers that ask again at once keep a processor busy, and see no more versions. */
const READ_PAUSE_MS = 10;

/** The first bytes of a version determine the rest. */
function version(): Buffer {
  const body = randomBytes(VERSION_BYTES);
  return Buffer.concat([createHash('sha256').update(body).digest(), body]);
}

function isWhole(bytes: Buffer): boolean {
  const body = bytes.subarray(32);
  return (
    body.length === VERSION_BYTES && createHash('sha256').update(body).digest().equals(bytes.subarray(0, 32))
  );
}

/** Readers see whole versions only, while some uploads end and others break off. */
export async function readersSeeWholeVersions(servers: Servers, writes: number): Promise<void> {
  await ask(serverOf(servers, 0), 'PUT', path('versions'), { body: version() });
  let writing = true;
  let reads = 0;
  const reader = async (index: number): Promise<void> => {
    while (writing) {
      const answer = await ask(serverOf(servers, index + reads), 'GET', path('versions'));
      assert.equal(answer.status, 200);
      assert.ok(isWhole(answer.bytes), `A mixture, or a part: ${answer.bytes.length} bytes`);
      reads++;
      await delay(READ_PAUSE_MS);
    }
  };
  const readers = [0, 1, 2].map(reader);
  for (let write = 0; write < writes; write++) {
    const base = serverOf(servers, write);
    if (write % 3 === 2) await breakOff(base, path('versions'), version());
    else assert.equal((await ask(base, 'PUT', path('versions'), { body: version() })).status, 204);
  }
  writing = false;
  await Promise.all(readers);
  assert.ok(reads > writes / 2, `${reads} reads`);
}

/** Sends half of an upload and disconnects. */
function breakOff(base: string, target: string, body: Buffer): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const request = httpRequest(`${base}${target}`, {
    method: 'PUT',
    headers: { 'content-length': String(body.length) },
  });
  request.on('error', () => resolve());
  request.on('close', () => resolve());
  request.write(body.subarray(0, body.length / 2), () => setImmediate(() => request.destroy()));
  return promise;
}
