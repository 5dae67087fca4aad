import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { downloadFile } from '../../client/transfer/download.ts';
import { uploadFile } from '../../client/transfer/upload.ts';
import { patientWorld } from '../patient-world.ts';
import { FakeCluster, type Reaction } from './fake-cluster.ts';

async function withCluster(
  action: (cluster: FakeCluster, client: ClusterClient) => Promise<void>,
  operationTimeoutMs = 5_000,
): Promise<void> {
  await using cluster = await FakeCluster.start();
  await using client = new ClusterClient({ world: patientWorld, servers: cluster.urls, operationTimeoutMs });
  await action(cluster, client);
}

/** Reacts to the first request for which `reactions` has a reaction, and answers others properly. */
function once(...reactions: Reaction[]): () => Reaction | null {
  return () => reactions.shift() ?? null;
}

function code(expected: string): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof ServiceError, `A ServiceError is expected, not ${String(error)}`);
    assert.equal(error.code, expected);
    return true;
  };
}

test('reads, writes and appends', () =>
  withCluster(async (cluster, client) => {
    const file = client.openFile(cluster.addFile('hello'), { replicas: ['s1', 's2', 's3'] });
    assert.equal((await file.write('append', Buffer.from(' world'))).offset, 5);
    await file.write(0, Buffer.from('J'));
    await file.truncate(7);
    assert.equal(Buffer.from((await file.read(0, 100)).bytes).toString(), 'Jello w');
    assert.equal((await file.state()).sizeBytes, 7);
    assert.equal(file.primary, 's1');
  }));

test('an unreachable server is skipped at once, and not asked again', () =>
  withCluster(async (cluster, client) => {
    await cluster.server(0).stop();
    const file = client.openFile(cluster.addFile('x'));
    const startMs = patientWorld.nowMs();
    for (let i = 0; i < 80; i++) await file.read(0, 1);
    assert.ok(patientWorld.nowMs() - startMs < 3_000, 'A refused connection costs no pause');
  }));

test('a server that restarted is used again', () =>
  withCluster(async (cluster, client) => {
    cluster.primary = 's2';
    const file = client.openFile(cluster.addFile('x'), { replicas: ['s2'] });
    await cluster.server(1).stop();
    await file.read(0, 1);
    await cluster.server(1).listen();
    const deadlineMs = patientWorld.nowMs() + 4_000;
    while (cluster.server(1).asked === 0 && patientWorld.nowMs() < deadlineMs) await file.read(0, 1);
    assert.ok(cluster.server(1).asked > 0, 'A probe finds that it runs again, and it is the primary');
  }));

test('a server that dies during an append: the retry has the same number and is not executed twice', () =>
  withCluster(async (cluster, client) => {
    const id = cluster.addFile('');
    const file = client.openFile(id);
    await file.write('append', Buffer.from('a'));
    const server = cluster.servers.find(({ asked }) => asked > 0);
    assert.ok(server);
    server.intercept = (request) => (request.method === 'PUT' ? { kind: 'execute-and-cut' } : null);
    const { offset } = await file.write('append', Buffer.from('b'));
    assert.equal(offset, 1);
    assert.equal(cluster.contents(id), 'ab');
    assert.equal(cluster.executed, 2);
    const puts = cluster.servers.flatMap(({ seen }) => seen).filter(({ method }) => method === 'PUT');
    assert.equal(puts.length, 3);
    assert.equal(new Set(puts.map(({ search }) => search.get('number'))).size, 2);
    assert.equal(new Set(puts.map(({ search }) => search.get('session'))).size, 1);
  }));

test('a catalog command whose answer is lost is executed once', () =>
  withCluster(async (cluster, client) => {
    cluster.server(0).intercept = once({ kind: 'execute-and-cut' });
    const volume = { kind: 'volume-create', name: 'v', replicas: 3, objectBytes: 4096 } as const;
    assert.equal((await client.command(volume)).volume.name, 'v');
    assert.equal(cluster.executed, 1);
  }));

test('a 421 that names the primary is followed without a pause', () =>
  withCluster(async (cluster, client) => {
    cluster.primary = 's3';
    const file = client.openFile(cluster.addFile('x'));
    await file.read(0, 1);
    // By now the client knows all servers' ids; the first read's answer named s3.
    await client.openFile(cluster.addFile('y'), { replicas: ['s2'] }).read(0, 1);
    const moved: Reaction = { kind: 'problem', code: 'not-primary', extra: { primary: 's1' } };
    cluster.primary = 's1';
    cluster.server(2).intercept = () => moved;
    cluster.server(1).intercept = () => moved;
    const startMs = patientWorld.nowMs();
    await file.read(0, 1);
    assert.ok(patientWorld.nowMs() - startMs < 1_000);
    assert.equal(file.primary, 's1');
  }));

test('the primary that answers name is asked first', () =>
  withCluster(async (cluster, client) => {
    cluster.primary = 's3';
    const file = client.openFile(cluster.addFile('x'));
    const deadlineMs = patientWorld.nowMs() + 2_000;
    // The client learns the servers' ids in the background.
    while (cluster.server(2).asked === 0 && patientWorld.nowMs() < deadlineMs) await file.read(0, 1);
    const asked = cluster.server(0).asked;
    for (let i = 0; i < 10; i++) await file.read(0, 1);
    assert.equal(cluster.server(0).asked, asked);
    assert.ok(cluster.server(2).asked >= 10);
  }));

test('after 503 the client tries other servers until one succeeds', () =>
  withCluster(async (cluster, client) => {
    const file = client.openFile(cluster.addFile('x'));
    let refusals = 0;
    for (const server of cluster.servers) {
      server.intercept = () => {
        if (refusals >= 7) return null;
        refusals++;
        return { kind: 'problem', code: 'no-majority', headers: { 'retry-after': '1' } };
      };
    }
    assert.equal(Buffer.from((await file.read(0, 1)).bytes).toString(), 'x');
    assert.equal(refusals, 7);
    assert.ok(
      cluster.servers.every(({ asked }) => asked >= 2),
      'Every server was asked',
    );
  }));

test('a recovering server is not asked while another one serves', () =>
  withCluster(async (cluster, client) => {
    cluster.server(0).intercept = () => ({
      kind: 'problem',
      code: 'recovering',
      headers: { 'retry-after': '3' },
    });
    const file = client.openFile(cluster.addFile('x'));
    const startMs = patientWorld.nowMs();
    for (let i = 0; i < 10; i++) await file.read(0, 1);
    assert.ok(patientWorld.nowMs() - startMs < 2_500);
    assert.equal(cluster.server(0).asked, 1);
  }));

test('Retry-After of a busy server is obeyed, up to a second', () =>
  withCluster(async (cluster, client) => {
    const busy = once({ kind: 'problem', code: 'busy', headers: { 'retry-after': '30' } });
    cluster.server(0).intercept = busy;
    const startMs = patientWorld.nowMs();
    await client.openFile(cluster.addFile('x')).read(0, 1);
    const tookMs = patientWorld.nowMs() - startMs;
    assert.ok(tookMs >= 900 && tookMs < 10_000, `It took ${tookMs} ms`);
  }));

test('without a majority until the deadline, the error names the missing servers, in time', () =>
  withCluster(async (cluster, client) => {
    for (const server of cluster.servers) {
      server.intercept = () => ({
        kind: 'problem',
        code: 'no-majority',
        extra: { unreachable: ['s2', 's3'] },
      });
    }
    const startMs = patientWorld.nowMs();
    await assert.rejects(client.openFile(cluster.addFile('x')).read(0, 1), (error) => {
      code('no-majority')(error);
      assert.deepEqual((error as ServiceError).details.unreachable, ['s2', 's3']);
      return true;
    });
    const tookMs = patientWorld.nowMs() - startMs;
    assert.ok(tookMs > 300 && tookMs < 5_000, `It took ${tookMs} ms`);
  }, 600));

test('if no server answers, the error names their addresses', async () => {
  await using cluster = await FakeCluster.start(2);
  await using client = new ClusterClient({
    world: patientWorld,
    servers: cluster.urls,
    operationTimeoutMs: 300,
  });
  await cluster.stop();
  await assert.rejects(client.query({ kind: 'volumes' }), (error) => {
    code('no-majority')(error);
    assert.match((error as Error).message, /no server answers at http:\/\/127\.0\.0\.1:\d+, http/);
    return true;
  });
  const startMs = patientWorld.nowMs();
  await assert.rejects(client.status({ timeoutMs: 10_000, failFast: true }), code('no-majority'));
  assert.ok(patientWorld.nowMs() - startMs < 5_000, 'With failFast no call waits');
});

test('a write that may have been executed ends as unknown, a read does not', () =>
  withCluster(async (cluster, client) => {
    const file = client.openFile(cluster.addFile('x'));
    await file.write(0, Buffer.from('y'));
    for (const server of cluster.servers) server.intercept = () => ({ kind: 'cut' });
    await assert.rejects(file.write(0, Buffer.from('z')), code('unknown'));
    await assert.rejects(file.read(0, 1), code('no-majority'));
  }, 400));

test('a command that may have been executed ends as such, also if its last attempt was not', () =>
  withCluster(async (cluster, client) => {
    const create = { kind: 'volume-create', name: 'v', replicas: 3, objectBytes: 4096 } as const;
    let attempts = 0;
    for (const server of cluster.servers)
      server.intercept = ({ body }) =>
        body.includes('"volume-create"')
          ? { kind: 'problem', code: attempts++ === 0 ? 'no-majority' : 'busy' }
          : null;
    await assert.rejects(client.command(create), code('no-majority'));
    assert.ok(attempts > 1);
    await assert.rejects(client.command(create), code('busy'));
  }, 600));

test('a server that hangs delays no operation beyond its time limit', () =>
  withCluster(async (cluster, client) => {
    for (const server of cluster.servers) server.intercept = () => ({ kind: 'hang' });
    const startMs = patientWorld.nowMs();
    await assert.rejects(client.openFile(cluster.addFile('x')).read(0, 1), ServiceError);
    assert.ok(patientWorld.nowMs() - startMs < 5_000);
  }, 400));

test('an attempt with hardly any time left does not hide why those before it failed', () =>
  withCluster(async (cluster, client) => {
    const file = client.openFile(cluster.addFile('x'));
    let beganMs: number | null = null;
    for (const server of cluster.servers)
      server.intercept = () => {
        beganMs ??= patientWorld.nowMs();
        return { kind: patientWorld.nowMs() - beganMs < 600 ? 'cut' : 'hang' };
      };
    await assert.rejects(file.read(0, 1), (error: ServiceError) => {
      code('no-majority')(error);
      assert.doesNotMatch(error.message, /within \d+ ms/);
      return true;
    });
  }, 1_000));

test('a signal ends a call with its reason', () =>
  withCluster(async (cluster, client) => {
    for (const server of cluster.servers) server.intercept = () => ({ kind: 'hang' });
    const controller = new AbortController();
    const reading = client.openFile(cluster.addFile('x')).read(0, 1, { signal: controller.signal });
    const reason = new Error('enough');
    setImmediate(() => controller.abort(reason));
    await assert.rejects(reading, reason);
  }));

test('while a command without a time limit has no answer, others are executed', () =>
  withCluster(async (cluster, client) => {
    for (const server of cluster.servers)
      server.intercept = ({ body }) => (body.includes('"unlink-files"') ? { kind: 'hang' } : null);
    const controller = new AbortController();
    const limits = { timeoutMs: Number.POSITIVE_INFINITY, signal: controller.signal };
    const unanswered = client.command({ kind: 'unlink-files', files: [] }, limits);
    const create = (name: string) =>
      client.command({ kind: 'volume-create', name, replicas: 3, objectBytes: 4096 });
    for (let number = 0; number < 70; number++) await create(`v${number}`);
    assert.equal(cluster.executed, 70);
    controller.abort(new Error('enough'));
    await assert.rejects(unanswered, /enough/);
  }, 2_000));

test("a command that waits for another one's session fails at its own time limit", () =>
  withCluster(async (cluster, client) => {
    for (const server of cluster.servers) server.intercept = () => ({ kind: 'hang' });
    const create = (options: object) =>
      client.command({ kind: 'volume-create', name: 'v', replicas: 3, objectBytes: 4096 }, options);
    const first = create({});
    const controller = new AbortController();
    const aborted = create({ signal: controller.signal });
    await assert.rejects(create({ timeoutMs: 20 }), code('no-majority'));
    controller.abort(new Error('enough'));
    await assert.rejects(aborted, /enough/);
    await assert.rejects(first, code('no-majority'));
  }, 500));

test('each session begins with its mark, and has no other command if that was executed too late', () =>
  withCluster(async (cluster, client) => {
    const create = (name: string) =>
      ({ kind: 'volume-create', name, replicas: 3, objectBytes: 4096 }) as const;
    const marked: number[] = [];
    let isLate = false;
    client.openSessionsWith({
      command: (session) => {
        marked.push(session);
        return create(`mark${marked.length}`);
      },
      executed: () => {
        if (isLate) throw new ServiceError('lease-lost', 'too late');
      },
    });
    const executed = (): string[] =>
      cluster.servers
        .flatMap(({ seen }) => seen)
        .filter(({ path }) => path === '/v1/catalog/commands')
        .map(({ body }) => JSON.parse(body.toString()))
        .map(({ session, command }) => `${marked.indexOf(session) + 1} ${command.name}`);
    await client.command(create('a'));
    await client.command(create('b'));
    isLate = true;
    const expired = once({ kind: 'problem', code: 'session-expired' });
    for (const server of cluster.servers)
      server.intercept = ({ body }) => (body.includes('"c"') ? expired() : null);
    await assert.rejects(client.command(create('c')), code('lease-lost'));
    assert.deepEqual(executed(), ['1 mark1', '1 a', '1 b', '1 c', '2 mark2']);
    client.openSessionsWith(null);
    await client.command(create('d'));
    assert.equal(executed().at(-1), '0 d');
  }));

test('an expired session is replaced if no outcome is unknown', () =>
  withCluster(async (cluster, client) => {
    const id = cluster.addFile('');
    const file = client.openFile(id);
    await file.write('append', Buffer.from('a'));
    const expired = once({ kind: 'problem', code: 'session-expired' });
    for (const server of cluster.servers) server.intercept = (r) => (r.method === 'PUT' ? expired() : null);
    await file.write('append', Buffer.from('b'));
    assert.equal(cluster.contents(id), 'ab');
    const sessions = cluster.servers.flatMap(({ seen }) => seen).map(({ search }) => search.get('session'));
    assert.equal(new Set(sessions.filter((session) => session !== null)).size, 2);
  }));

test('a session claims to be exactly as old as what is known of the file', () =>
  withCluster(async (cluster, client) => {
    const id = cluster.addFile('');
    await client.openFile(id, { since: 7 }).write(0, Buffer.from('a'));
    const asked = client.openFile(id);
    const { seq } = await asked.state();
    await asked.write(0, Buffer.from('b'));
    const claims = cluster.servers
      .flatMap(({ seen }) => seen)
      .flatMap(({ search }) => search.get('since') ?? []);
    assert.deepEqual(claims, ['7', String(seq)]);
    assert.ok(seq > 0);
  }));

test('an expired session after an attempt without an answer is an error', () =>
  withCluster(async (cluster, client) => {
    const id = cluster.addFile('');
    const file = client.openFile(id);
    await file.write('append', Buffer.from('a'));
    const reactions = once({ kind: 'execute-and-cut' }, { kind: 'problem', code: 'session-expired' });
    for (const server of cluster.servers) server.intercept = (r) => (r.method === 'PUT' ? reactions() : null);
    await assert.rejects(file.write('append', Buffer.from('b')), code('unknown'));
    assert.equal(cluster.contents(id), 'ab', 'It was executed once, and not again under another number');
  }));

test('an expired session after a server that may have forwarded the request is an error', () =>
  withCluster(async (cluster, client) => {
    for (const passing of ['no-majority', 'recovering', 'clock-fault'] as const) {
      const file = client.openFile(cluster.addFile(''));
      await file.write('append', Buffer.from('a'));
      const reactions = once(
        { kind: 'problem', code: passing },
        { kind: 'problem', code: 'session-expired' },
      );
      for (const server of cluster.servers)
        server.intercept = (r) => (r.method === 'PUT' ? reactions() : null);
      await assert.rejects(file.write('append', Buffer.from('b')), code('unknown'), passing);
    }
    const file = client.openFile(cluster.addFile(''));
    await file.write('append', Buffer.from('a'));
    const reactions = once({ kind: 'problem', code: 'busy' }, { kind: 'problem', code: 'session-expired' });
    for (const server of cluster.servers) server.intercept = (r) => (r.method === 'PUT' ? reactions() : null);
    await file.write('append', Buffer.from('b'));
  }));

test('a change of a volume that moves waits longer than its time limit', () =>
  withCluster(async (cluster, client) => {
    const id = cluster.addFile('');
    const untilMs = patientWorld.nowMs() + 900;
    for (const server of cluster.servers)
      server.intercept = ({ method }) =>
        method === 'PUT' && patientWorld.nowMs() < untilMs ? { kind: 'problem', code: 'moving' } : null;
    await client.openFile(id).write('append', Buffer.from('a'));
    assert.ok(patientWorld.nowMs() >= untilMs);
    assert.equal(cluster.contents(id), 'a');
  }, 400));

test('a volume that has moved has certainly not executed the change, whatever attempts there were', () =>
  withCluster(async (cluster, client) => {
    const moved = { kind: 'problem', code: 'not-found', extra: { elsewhere: true, movedTo: 3 } } as const;
    const reactions = once({ kind: 'problem', code: 'no-majority' }, { kind: 'cut' }, moved);
    for (const server of cluster.servers)
      server.intercept = ({ path }) => (path === '/v1/catalog/commands' ? reactions() : null);
    const change = { kind: 'volume-create', name: 'v', replicas: 3, objectBytes: 4096 } as const;
    await assert.rejects(client.command(change), (error) => {
      code('not-found')(error);
      assert.deepEqual((error as ServiceError).details, { elsewhere: true, movedTo: 3 });
      return true;
    });
  }));

test('a final error is not tried again', () =>
  withCluster(async (cluster, client) => {
    await assert.rejects(client.resolve('nowhere', '/'), code('not-found'));
    assert.equal(
      cluster.servers.reduce((sum, { asked }) => sum + asked, 0),
      1,
    );
  }));

test('an answer that is no problem document is quoted', () =>
  withCluster(async (cluster, client) => {
    cluster.server(0).intercept = () => ({ kind: 'answer', status: 404, text: '<h1>Another program</h1>' });
    await assert.rejects(client.status(), /HTTP status 404: <h1>Another program/);
  }));

test('a server that accepts connections and breaks them is skipped', async () => {
  const breaker = createServer((socket) => socket.destroy());
  await new Promise<void>((resolve) => breaker.listen(0, '127.0.0.1', resolve));
  const address = breaker.address();
  assert.ok(typeof address === 'object' && address !== null);
  try {
    await using cluster = await FakeCluster.start(1);
    await using client = new ClusterClient({
      world: patientWorld,
      servers: [`http://127.0.0.1:${address.port}`, ...cluster.urls],
    });
    assert.equal((await client.status()).verdict, 'healthy');
  } finally {
    breaker.close();
  }
});

test('many writes of one session run in parallel, within the window', () =>
  withCluster(async (cluster, client) => {
    const id = cluster.addFile('');
    const file = client.openFile(id);
    const writes = Array.from({ length: 200 }, (_, index) =>
      file.write(index, Buffer.from([65 + (index % 26)])),
    );
    await Promise.all(writes);
    assert.equal(cluster.contents(id).length, 200);
    assert.equal(cluster.executed, 200);
  }));

test('uploads and downloads succeed although a server dies on the way', () =>
  withCluster(async (cluster, client) => {
    await client.command({ kind: 'volume-create', name: 'v', replicas: 3, objectBytes: 4096 });
    const contents = Buffer.alloc(5_500_000, 'leasehold ');
    let bytes = 0;
    const stored = await uploadFile(client, 'v', '/big', slices(contents), {
      onProgress: (count) => {
        bytes = count;
        if (count > 2_000_000) void cluster.server(0).stop();
      },
    });
    assert.equal(stored.sizeBytes, contents.length);
    assert.equal(bytes, contents.length);
    const download = await downloadFile(client, 'v', '/big');
    assert.equal(download.etag, stored.etag);
    const chunks: Uint8Array[] = [];
    for await (const chunk of download.chunks) chunks.push(chunk);
    assert.ok(Buffer.concat(chunks).equals(contents));
  }));

async function* slices(bytes: Buffer): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += 70_001) yield bytes.subarray(at, at + 70_001);
}

test('a download of a file that changes meanwhile is refused at its end', () =>
  withCluster(async (_cluster, client) => {
    await client.command({ kind: 'volume-create', name: 'v', replicas: 3, objectBytes: 4096 });
    const { attributes } = await uploadFile(client, 'v', '/f', slices(Buffer.from('before')));
    const download = await downloadFile(client, 'v', '/f');
    await client.openFile(attributes.inode).write(0, Buffer.from('B'));
    await assert.rejects(async () => {
      for await (const chunk of download.chunks) assert.ok(chunk.length > 0);
    }, code('precondition-failed'));
  }));

test('an upload whose source fails leaves nothing at the path', () =>
  withCluster(async (_cluster, client) => {
    await client.command({ kind: 'volume-create', name: 'v', replicas: 3, objectBytes: 4096 });
    async function* broken(): AsyncGenerator<Uint8Array> {
      yield Buffer.alloc(2_000_000);
      throw new Error('the disk broke');
    }
    await assert.rejects(uploadFile(client, 'v', '/f', broken()), /the disk broke/);
    await assert.rejects(client.resolve('v', '/f'), code('not-found'));
  }));

test('a directory is listed in pages', () =>
  withCluster(async (_cluster, client) => {
    const { volume } = await client.command({
      kind: 'volume-create',
      name: 'v',
      replicas: 3,
      objectBytes: 4096,
    });
    const names = Array.from({ length: 2_500 }, (_, index) => `d${String(index).padStart(5, '0')}`);
    await Promise.all(
      names.map((name) =>
        client.command({
          kind: 'make-directory',
          place: { parent: volume.root, name },
          mode: 0o755,
          uid: 0,
          gid: 0,
        }),
      ),
    );
    const listed: string[] = [];
    for await (const entry of client.list({ inode: volume.root })) listed.push(entry.name);
    assert.deepEqual(listed, names);
  }, 120_000));

test('invalid addresses are refused', () => {
  assert.throws(() => new ClusterClient({ world: patientWorld, servers: [] }), code('bad-request'));
  assert.throws(() => new ClusterClient({ world: patientWorld, servers: ['ftp://x'] }), code('bad-request'));
  assert.throws(() => new ClusterClient({ world: patientWorld, servers: ['http://'] }), code('bad-request'));
});
