import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import { NumberedRequests } from '../../server/requests/numbered-requests.ts';
import type { CommandResults } from '../../wire/catalog-api.ts';
import { encodeWriteParts } from '../../wire/file-operation.ts';
import type { FileExtent, FileState, WriteResult } from '../../wire/http-api.ts';
import { ask, problemIn } from './ask.ts';
import { FakeCluster } from './fake-services.ts';

const S1 = 's1' as ServerId;
const S2 = 's2' as ServerId;
const S3 = 's3' as ServerId;
const TIMEOUT_MS = 1_000;

describe('the gateway', () => {
  let cluster: FakeCluster;

  beforeEach(async () => {
    cluster = await FakeCluster.start({ servers: 4, operationTimeoutMs: TIMEOUT_MS });
  });
  afterEach(() => cluster.close());

  const makeFile = async (name: string): Promise<FileId> => {
    const { attributes } = await cluster.server(0).gateway.command({
      kind: 'create-file',
      place: { volume: 'main', path: name },
      mode: 0o644,
      uid: 0,
      gid: 0,
      exclusive: true,
    });
    return attributes.inode as FileId;
  };
  const write = (index: number, file: FileId, number: number, text: string) =>
    ask(
      cluster.server(index).url,
      'PUT',
      `/v1/data/${file}?offset=append&session=77&number=${number}&since=0`,
      {
        body: text,
      },
    );

  test('every server accepts a command, and the catalog’s primary executes it once', async () => {
    cluster.catalogPrimary = S3;
    for (const [index, { url }] of cluster.servers.entries()) {
      const body = JSON.stringify({
        session: 42,
        number: index + 1,
        command: {
          kind: 'make-directory',
          place: { volume: 'main', path: `d${index}` },
          mode: 493,
          uid: 0,
          gid: 0,
        },
      });
      const answer = await ask(url, 'POST', '/v1/catalog/commands', {
        body,
        headers: { 'content-type': 'application/json' },
      });
      assert.equal(answer.status, 200, answer.text);
    }
    assert.deepEqual(
      cluster.commands.map(({ session, number }) => [session, number]),
      [1, 2, 3, 4].map((number) => [42, number]),
    );
  });

  test('a retry after a lost answer carries the same request id', async () => {
    cluster.catalogPrimary = S2;
    let lost = 0;
    cluster.intercept = ({ method, server }) => {
      if (method !== 'execute' || server !== S2) return;
      // The first attempt is executed, and its answer is lost.
      if (lost++ === 0) {
        const request = cluster.seen.at(-1);
        assert.ok(request !== undefined);
        cluster.execute(request);
        throw new ServiceError('unknown', 'The answer is lost');
      }
    };
    const result = await cluster.server(0).gateway.command({
      kind: 'create-file',
      place: { volume: 'main', path: 'once' },
      mode: 0o644,
      uid: 0,
      gid: 0,
      exclusive: true,
    });
    assert.equal(result.created, true);
    const names = cluster.seen.map(({ session, number }) => `${session}/${number}`);
    assert.equal(new Set(names).size, 1, 'All attempts have one number');
    assert.ok(names.length >= 2);
  });

  test('the catalog epoch in answers does not decrease when the server stops being the primary of the catalog', async () => {
    const body = JSON.stringify({ query: { kind: 'volumes' } });
    const headers = { 'content-type': 'application/json' };
    const query = () => ask(cluster.server(0).url, 'POST', '/v1/catalog/queries', { body, headers });
    cluster.catalogEpoch = 3;
    assert.equal((await query()).headers['leasehold-catalog-epoch'], '3');
    cluster.catalogPrimary = null;
    const { status, headers: answered } = await query();
    assert.deepEqual([status, answered['leasehold-catalog-epoch']], [503, '3']);
  });

  test("a server without a replica finds the file's primary, and remembers it", async () => {
    const file = await makeFile('far');
    const members = [S1, S2, S3];
    const outside = 3;
    const first = await write(outside, file, 1, 'one');
    assert.equal(first.status, 200, first.text);
    const state = JSON.parse(first.text) as WriteResult;
    assert.ok(members.includes(state.primary as ServerId));
    assert.equal(first.headers['leasehold-primary'], state.primary);
    assert.equal(first.headers['leasehold-role'], 'none');
    const asked: ServerId[] = [];
    cluster.intercept = ({ server, method }) => {
      if (method === 'write') asked.push(server);
    };
    assert.equal((await write(outside, file, 2, 'two')).status, 200);
    assert.deepEqual(asked, ['s4', state.primary], 'Itself, then the one it remembers');
    const read = await ask(cluster.server(outside).url, 'GET', `/v1/data/${file}?offset=1&length=100`);
    assert.equal(read.text, 'netwo');
    assert.equal(read.headers['leasehold-size'], '6');
    const end = await ask(cluster.server(1).url, 'GET', `/v1/data/${file}?offset=6&length=100`);
    assert.equal(end.status, 200);
    assert.equal(end.headers['content-length'], '0');
  });

  test('a command about a live file uses what its primary knows, if the client demands it', async () => {
    const file = await makeFile('timed');
    const written = JSON.parse((await write(0, file, 1, 'four')).text) as WriteResult;
    const attributes = async (number: number, live: boolean) => {
      const command = { kind: 'set-attributes', inode: file, modifiedNs: '7' };
      const answer = await ask(cluster.server(3).url, 'POST', '/v1/catalog/commands', {
        body: JSON.stringify({ session: 77, number, live, command }),
        headers: { 'content-type': 'application/json' },
      });
      assert.equal(answer.status, 200, answer.text);
      return (JSON.parse(answer.text) as CommandResults['set-attributes']).attributes;
    };
    const { sizeBytes, contents } = await attributes(1, false);
    assert.deepEqual([sizeBytes, contents], [0, { epoch: 0, seq: 0 }]);
    const known = await attributes(2, true);
    assert.deepEqual([known.sizeBytes, known.contents, known.modifiedNs], [4, written.contents, '7']);
    assert.equal(cluster.commands.length, 3, 'Each is one command');
  });

  test('a forwarded request is answered here or not at all', async () => {
    const file = await makeFile('here');
    await write(0, file, 1, 'x');
    const headers = { 'leasehold-forwarded': '1' };
    const data = await ask(cluster.server(1).url, 'GET', `/v1/data/${file}/state`, { headers });
    assert.equal(data.status, 421);
    assert.equal(problemIn(data).primary, 's1');
    const query = await ask(cluster.server(1).url, 'POST', '/v1/catalog/queries', {
      headers: { ...headers, 'content-type': 'application/json' },
      body: JSON.stringify({ query: { kind: 'volumes' } }),
    });
    assert.equal(query.status, 421);
    assert.equal(problemIn(query).code, 'not-primary');
  });

  test('a primary that dies while it handles a request is left at once, and its successor found', async () => {
    const file = await makeFile('mortal');
    await write(0, file, 1, 'before ');
    const contents = cluster.contentsOf(file);
    assert.equal(contents.primary, S1);
    const attempts: string[] = [];
    let hasAnswered = false;
    cluster.intercept = async ({ server, method, request }) => {
      if (method !== 'write' || request === undefined) return;
      attempts.push(`${server}:${request.session}/${request.number}`);
      if (server !== S1) return;
      // The primary hangs, as if it were paused, until long after the test.
      setImmediate(() => {
        cluster.disconnect(S1);
        contents.primary = null;
      });
      await new Promise((resolve) => setTimeout(resolve, TIMEOUT_MS * 2).unref());
      hasAnswered = true;
      throw new ServiceError('unknown', 'Far too late');
    };
    const answer = await write(1, file, 2, 'after');
    assert.equal(answer.status, 200, answer.text);
    assert.equal((JSON.parse(answer.text) as WriteResult).primary, S2);
    assert.ok(!hasAnswered, 'The hanging primary was waited for');
    assert.deepEqual(attempts, ['s2:77/2', 's1:77/2', 's2:77/2']);
    assert.equal(contents.bytes.toString(), 'before after');
  });

  test('without a primary the answer is a 503 in bounded time that names the missing servers', async () => {
    const file = await makeFile('lost');
    await write(2, file, 1, 'x');
    assert.equal(cluster.contentsOf(file).primary, S3);
    cluster.disconnect(S2);
    cluster.disconnect(S3);
    const startMs = performance.now();
    const answer = await write(0, file, 2, 'y');
    const tookMs = performance.now() - startMs;
    assert.equal(answer.status, 503);
    const problem = problemIn(answer);
    assert.equal(problem.code, 'no-majority');
    assert.deepEqual(problem.unreachable, ['s2', 's3']);
    assert.ok(Number(answer.headers['retry-after']) >= 1);
    assert.ok(tookMs >= TIMEOUT_MS * 0.9 && tookMs < TIMEOUT_MS * 20, `It took ${tookMs} ms`);
  });

  test('waiting for an election is no busy loop', async () => {
    const file = await makeFile('undecided');
    let asked = 0;
    cluster.intercept = ({ method }) => {
      if (method !== 'state') return;
      asked++;
      throw new ServiceError('not-primary', 'An election is in progress');
    };
    await assert.rejects(cluster.server(0).gateway.files.state(file), { code: 'no-majority' });
    assert.ok(asked >= 4 && asked < 40, `${asked} attempts in ${TIMEOUT_MS} ms`);
  });

  test('two servers that name each other are not asked in circles', async () => {
    const file = await makeFile('circle');
    let asked = 0;
    cluster.intercept = ({ method, server }) => {
      if (method !== 'flush') return;
      asked++;
      throw new ServiceError('not-primary', 'Not me', { primary: server === S1 ? S2 : S1 });
    };
    await assert.rejects(cluster.server(0).gateway.files.flush(file), { code: 'no-majority' });
    assert.ok(asked < 60, `${asked} attempts`);
  });

  const finals = [
    ['not-found', 404],
    ['session-expired', 409],
    ['busy', 503],
    ['integrity', 500],
  ] as const;
  test('a server without free space is asked again for a while: if no other takes its place, the client gets the error', async () => {
    const file = await makeFile('full');
    await write(0, file, 1, 'x');
    let asked = 0;
    cluster.intercept = ({ method, server }) => {
      if (method !== 'read' || server !== S1) return;
      asked++;
      throw new ServiceError('no-space', 'Said by the primary');
    };
    const path = `/v1/data/${file}?length=1`;
    const answers = await Promise.all([0, 1].map((index) => ask(cluster.server(index).url, 'GET', path)));
    for (const { status } of answers) assert.equal(status, 507);
    assert.ok(asked >= 4, `${asked} attempts`);
  });

  test('if the primary itself has free space and stays, its report that others have none is final at once', async () => {
    const file = await makeFile('lagging');
    await write(0, file, 1, 'x');
    const asked: string[] = [];
    cluster.intercept = ({ method, server }) => {
      if (method !== 'write') return;
      asked.push(server);
      if (server === S1) throw new ServiceError('no-space', 'The others are full', { primary: S1 });
    };
    for (const index of [0, 1]) {
      const answer = await write(index, file, 2, 'y');
      assert.deepEqual([answer.status, problemIn(answer).code], [507, 'no-space']);
      assert.equal(asked.splice(0).filter((server) => server === S1).length, 1, 'Asked once');
    }
  });

  test('no-space is not reported if an earlier attempt may have succeeded', async () => {
    const file = await makeFile('doubt');
    await write(0, file, 1, 'x');
    let asked = 0;
    cluster.intercept = ({ method, server }) => {
      if (method !== 'write') return;
      if (server === S1 && asked++ === 0) throw new ServiceError('unknown', 'The answer is lost');
      throw new ServiceError('no-space', 'Said by each of them');
    };
    assert.equal(problemIn(await write(0, file, 2, 'y')).code, 'no-majority');
    assert.equal(problemIn(await write(0, file, 3, 'z')).code, 'no-space');
  });

  test("a server without free space is skipped as soon as another is the file's primary", async () => {
    const file = await makeFile('moved');
    await write(0, file, 1, 'x');
    let asked = 0;
    cluster.intercept = ({ method, server }) => {
      if (method !== 'read' || server !== S1) return;
      // The other is elected only while the first one is asked once more.
      const found = cluster.files.get(file) ?? assert.fail('It was written');
      if (++asked === 2) found.primary = S2;
      throw new ServiceError('no-space', 'Said by the one before');
    };
    const answer = await ask(cluster.server(0).url, 'GET', `/v1/data/${file}?length=1`);
    assert.deepEqual([answer.status, answer.text], [200, 'x']);
  });

  test('a client whose session was forgotten after an attempt without an answer gets an unknown outcome', async () => {
    const file = await makeFile('forgotten');
    await write(0, file, 1, 'x');
    let asked = 0;
    cluster.intercept = ({ method, server }) => {
      if (method !== 'write' && method !== 'execute') return;
      if (server === S1 && asked++ === 0) throw new ServiceError('unknown', 'The answer is lost');
      throw new ServiceError('session-expired', 'So many others came since');
    };
    // Another session would execute it twice.
    assert.equal(problemIn(await write(0, file, 2, 'y')).code, 'unknown');
    assert.equal(problemIn(await write(0, file, 2, 'y')).code, 'session-expired');
    asked = 0;
    cluster.catalogPrimary = S1;
    const command = { kind: 'open-for-write', inode: file } as const;
    const request = { session: 42, number: 1 };
    await assert.rejects(cluster.server(0).gateway.command(command, request), { code: 'unknown' });
    await assert.rejects(cluster.server(0).gateway.command(command, request), { code: 'session-expired' });
  });

  for (const [code, status] of finals) {
    test(`${code} is reported at once, also from a peer`, async () => {
      const file = await makeFile('final');
      await write(0, file, 1, 'x');
      let asked = 0;
      cluster.intercept = ({ method, server }) => {
        if (method !== 'read' || server !== S1) return;
        asked++;
        throw new ServiceError(code, "The primary's answer", { retryAfterMs: 2500 });
      };
      for (const index of [0, 1]) {
        const answer = await ask(cluster.server(index).url, 'GET', `/v1/data/${file}?length=1`);
        assert.equal(answer.status, status);
        assert.equal(problemIn(answer).code, code);
        assert.equal(problemIn(answer).detail, "The primary's answer");
        if (status === 503) assert.equal(answer.headers['retry-after'], '3');
      }
      assert.equal(asked, 2);
    });
  }

  test('a server that waits for old leases lets its peers answer', async () => {
    const file = await makeFile('served');
    await write(1, file, 1, 'x');
    cluster.intercept = ({ server }) => {
      if (server === S1)
        throw new ServiceError('recovering', 'Leases of before may be in force', { retryAfterMs: 900 });
    };
    cluster.catalogPrimary = S2;
    assert.equal((await ask(cluster.server(0).url, 'GET', `/v1/data/${file}?length=1`)).text, 'x');
    cluster.intercept = () => {
      throw new ServiceError('recovering', 'Leases of before may be in force', { retryAfterMs: 900 });
    };
    const answer = await ask(cluster.server(0).url, 'GET', `/v1/data/${file}?length=1`);
    assert.equal(answer.status, 503);
    assert.equal(problemIn(answer).code, 'recovering');
  });

  test('a listing does not need a live file’s primary, a stat does', async () => {
    const file = await makeFile('live');
    await write(2, file, 1, 'twelve bytes');
    const { gateway } = cluster.server(0);
    const list = async () => {
      const { attributes } = await gateway.query({
        kind: 'resolve',
        volume: 'main',
        path: '/',
        follow: false,
      });
      const { entries } = await gateway.query({
        kind: 'list',
        inode: attributes.inode,
        after: '',
        countMax: 10,
      });
      return entries.find(({ name }) => name === 'live')?.attributes.sizeBytes;
    };
    assert.equal(await list(), 12);
    cluster.disconnect(S3);
    assert.equal(await list(), 0, 'The catalog’s value');
    await assert.rejects(gateway.query({ kind: 'attributes', inode: file }), { code: 'no-majority' });
  });

  test('a session that the catalog forgot is replaced if no request can have been executed', async () => {
    let refusals = 0;
    cluster.intercept = ({ method }) => {
      if (method === 'execute' && refusals++ === 0) throw new ServiceError('session-expired', 'Forgotten');
    };
    await makeFile('renamed');
    const sessions = new Set(cluster.seen.map(({ session }) => session));
    assert.equal(sessions.size, 2);
    refusals = -1;
    cluster.intercept = ({ method }) => {
      if (method !== 'execute') return;
      refusals++;
      if (refusals === 0) throw new ServiceError('unknown', 'Perhaps');
      if (refusals === 1) throw new ServiceError('session-expired', 'Forgotten');
    };
    await assert.rejects(makeFile('doubtful'), { code: 'unknown' });
  });

  test('state, flush, settle, truncate answer with the state of the file', async () => {
    const file = await makeFile('states');
    await write(0, file, 1, '0123456789');
    const { url } = cluster.server(2);
    const truncated = await ask(url, 'POST', `/v1/data/${file}/truncate?size=4&session=77&number=2&since=0`);
    assert.equal((JSON.parse(truncated.text) as WriteResult).sizeBytes, 4);
    for (const [method, path] of [
      ['GET', 'state'],
      ['POST', 'flush'],
      ['POST', 'settle'],
    ] as const) {
      const answer = await ask(url, method, `/v1/data/${file}/${path}`);
      assert.equal(answer.status, 200, answer.text);
      const state = JSON.parse(answer.text) as FileState;
      assert.equal(state.sizeBytes, 4);
      assert.equal(answer.headers['leasehold-primary'], 's1');
      assert.equal(answer.headers['leasehold-role'], 'backup');
    }
  });

  test('parts of a file are written once, all of them or none', async () => {
    const file = await makeFile('parts');
    await write(0, file, 1, '0123456789');
    const { url } = cluster.server(2);
    const send = (body: Uint8Array, number: number) =>
      ask(url, 'PUT', `/v1/data/${file}/parts?session=77&number=${number}&since=0`, { body });
    const parts = [
      { offset: 2, bytes: Buffer.from('abc') },
      { offset: 12, bytes: Buffer.from('z') },
      { offset: 4, bytes: Buffer.from('CD') },
    ];
    const answer = await send(encodeWriteParts(parts), 2);
    assert.equal(answer.status, 200, answer.text);
    const { offset, sizeBytes } = JSON.parse(answer.text) as WriteResult;
    assert.deepEqual([offset, sizeBytes], [2, 13]);
    await write(0, file, 3, 'XX');
    assert.equal(
      (await send(encodeWriteParts(parts), 2)).text,
      answer.text,
      'Answered again, and not executed',
    );
    const read = await ask(url, 'GET', `/v1/data/${file}?offset=0&length=100`);
    assert.equal(read.text, '01abCD6789\0\0zXX');
    for (const body of [Buffer.alloc(0), encodeWriteParts([]), encodeWriteParts(parts).subarray(1)]) {
      const refused = await send(body, 4);
      assert.deepEqual(
        [refused.status, (JSON.parse(refused.text) as { code: string }).code],
        [400, 'bad-request'],
      );
    }
  });

  test('holes, searches and copies go to the primaries, and a copy is executed once', async () => {
    const file = await makeFile('source');
    const copy = await makeFile('copy');
    await write(0, file, 1, '0123456789');
    const { url } = cluster.server(2);
    const name = (number: number) => `session=77&number=${number}&since=0`;
    const punched = await ask(url, 'POST', `/v1/data/${file}/punch?from=2&to=4&grows=false&${name(2)}`);
    assert.deepEqual((JSON.parse(punched.text) as WriteResult).offset, 4);
    const grown = await ask(url, 'POST', `/v1/data/${file}/punch?from=12&to=12&grows=true&${name(3)}`);
    assert.equal((JSON.parse(grown.text) as WriteResult).sizeBytes, 12);
    const hole = await ask(url, 'GET', `/v1/data/${file}/extents?offset=3&whence=hole`);
    assert.equal((JSON.parse(hole.text) as FileExtent).found, 12);
    const behind = await ask(url, 'GET', `/v1/data/${file}/extents?offset=12&whence=data`);
    assert.equal((JSON.parse(behind.text) as FileExtent).found, null);
    const order = { from: file, fromOffset: 1, toOffset: 5, length: 100 };
    const send = (to: number, body: unknown, number = 4) =>
      ask(url, 'POST', `/v1/data/${to}/copy?${name(number)}`, { body: JSON.stringify(body) });
    const copied = await send(copy, order);
    assert.equal(copied.status, 200, copied.text);
    assert.equal((JSON.parse(copied.text) as WriteResult).offset, 16);
    await write(0, file, 5, 'xxxxxxxxxx');
    assert.deepEqual(JSON.parse((await send(copy, order)).text), JSON.parse(copied.text));
    const read = await ask(url, 'GET', `/v1/data/${copy}?offset=0&length=100`);
    assert.equal(read.text, '\0\0\0\0\x001\0\x00456789\0\0');
    for (const [to, body] of [
      [file, { ...order, toOffset: 50 }],
      [copy, { ...order, from: 'x' }],
      [copy, { ...order, length: -1 }],
      [copy, { from: file }],
      [copy, [order]],
    ] as const) {
      const answer = await send(to, body, 6);
      assert.equal(answer.status, 400, answer.text);
      assert.equal(problemIn(answer).code, 'bad-request');
    }
  });

  const malformed = [
    ['PUT', 'offset=0&session=1&number=1&since=0', '', 400, 'bad-request'],
    ['PUT', 'offset=x&session=1&number=1&since=0', 'b', 400, 'bad-request'],
    ['PUT', 'offset=-1&session=1&number=1&since=0', 'b', 400, 'bad-request'],
    ['PUT', 'offset=9007199254740991&session=1&number=1&since=0', 'b', 400, 'bad-request'],
    ['PUT', 'offset=0&session=0&number=1&since=0', 'b', 400, 'bad-request'],
    ['PUT', 'offset=0&session=1&number=1', 'b', 400, 'bad-request'],
    ['PUT', 'offset=0&session=1&number=1&since=0', 'b'.repeat(4 * 1024 * 1024 + 1), 413, 'too-large'],
    ['GET', 'offset=0', '', 400, 'bad-request'],
    ['GET', 'offset=0&length=4194305', '', 400, 'bad-request'],
    ['GET', 'offset=1e3&length=1', '', 400, 'bad-request'],
  ] as const;
  for (const [method, query, body, status, code] of malformed) {
    test(`${method} data?${query} with ${body.length} bytes is refused`, async () => {
      const answer = await ask(
        cluster.server(0).url,
        method,
        `/v1/data/5?${query}`,
        body === '' ? {} : { body },
      );
      assert.equal(answer.status, status, answer.text);
      assert.equal(problemIn(answer).code, code);
    });
  }

  const commands = [
    ['', /not a JSON object/],
    ['{', /JSON/],
    ['[]', /not a JSON object/],
    ['{"session":1,"number":1,"command":{"kind":"explode"}}', /unknown kind "explode"/],
    ['{"session":1,"number":1,"command":{"kind":"unlink"}}', /"unlink" is malformed/],
    ['{"session":0,"number":1,"command":{"kind":"volume-remove","name":"x"}}', /"session"/],
    ['{"session":1,"number":"1","command":{"kind":"volume-remove","name":"x"}}', /"number"/],
  ] as const;
  for (const [body, detail] of commands) {
    test(`the command ${body} is refused`, async () => {
      const answer = await ask(cluster.server(0).url, 'POST', '/v1/catalog/commands', {
        body,
        headers: { 'content-type': 'application/json' },
      });
      assert.equal(answer.status, 400);
      assert.equal(problemIn(answer).code, 'bad-request');
      assert.match(problemIn(answer).detail, detail);
    });
  }
});

test('request numbers: each used once, and never far ahead of one still in use', () => {
  let drawn = 0;
  const names = new NumberedRequests(() => ++drawn);
  const stuck = names.acquire(null);
  const seen = new Set<string>();
  for (let count = 0; count < 500; count++) {
    const name = names.acquire(null);
    if (name.session === stuck.session) assert.ok(name.number - stuck.number < 32);
    const text = `${name.session}/${name.number}`;
    assert.ok(!seen.has(text));
    seen.add(text);
    names.release(name);
  }
  assert.equal(drawn, 2, 'The stuck session is left aside, the other one continues');
});
