import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { systemWorld } from '../../world/system-world.ts';
import { ask } from '../http/ask.ts';
import { isLong } from '../long.ts';
import { RealCluster, until } from './real-cluster.ts';
import { RecordWriter } from './record-writer.ts';

const LEASE_MS = 4_000;
/** Pause between two names: their number proves nothing. */
const PAUSE_MS = isLong ? 0 : 10;

const cluster = await RealCluster.start({ lease: `${LEASE_MS}ms` });
after(() => cluster.stop());
await cluster.createVolume('main');

/** Creates names, moves some of them, removes others; remembers only what was acknowledged. */
class NameWriter {
  readonly #client = new ClusterClient({
    world: systemWorld,
    servers: cluster.urls,
    operationTimeoutMs: 40_000,
  });
  readonly #stop = new AbortController();
  readonly #ended: Promise<void>;
  readonly there = new Set<string>();
  readonly gone = new Set<string>();
  commands = 0;

  constructor() {
    this.#ended = this.#run();
    this.#ended.catch(() => undefined);
  }

  async #run(): Promise<void> {
    for (let number = 0; !this.#stop.signal.aborted; number++) {
      await delay(PAUSE_MS);
      const name = `/names/n${number}`;
      try {
        await this.#client.command({
          kind: 'create-file',
          place: { volume: 'main', path: name },
          mode: 0o600,
          uid: 0,
          gid: 0,
          exclusive: true,
        });
        this.there.add(name);
        this.commands++;
        if (number % 3 === 1) {
          this.there.delete(name);
          await this.#client.command({
            kind: 'rename',
            from: { volume: 'main', path: name },
            to: { volume: 'main', path: `${name}-moved` },
            mode: 'no-replace',
          });
          this.there.add(`${name}-moved`);
          this.gone.add(name);
          this.commands++;
        } else if (number % 3 === 2) {
          this.there.delete(name);
          await this.#client.command({ kind: 'unlink', place: { volume: 'main', path: name } });
          this.gone.add(name);
          this.commands++;
        }
      } catch (error) {
        // Without an answer in time this name's state is unknown.
        if (!(error instanceof ServiceError) || error.remedy !== 'retry') throw error;
      }
    }
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#ended;
    await this.#client.close();
  }
}

test('all servers are killed in the middle of writes and started again: acknowledged writes exist', async (t) => {
  assert.equal((await ask(cluster.url('s1'), 'PUT', '/v1/files/main/names/')).status, 201);
  const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  t.after(() => client.close());
  const files = await Promise.all(
    ['a', 'b'].map(async (name) => {
      const place = { volume: 'main', path: `/${name}` };
      const command = { kind: 'create-file', place, mode: 0o644, uid: 0, gid: 0, exclusive: true } as const;
      return { name, file: (await client.command(command)).attributes.inode };
    }),
  );
  const writers = files.map(({ file }) => new RecordWriter(cluster.urls, file, 0, 1));
  const names = new NameWriter();
  try {
    const progress = async (what: string) => {
      const before = [names.commands, ...writers.map(({ acknowledged }) => acknowledged)];
      await until(
        `${what}: names and records are written`,
        async () =>
          [names.commands, ...writers.map(({ acknowledged }) => acknowledged)].every(
            (now, index) => now > (before[index] ?? 0) + 20,
          ),
        60_000,
      );
    };
    await progress('before the kill');
    await Promise.all(cluster.ids.map((id) => cluster.kill(id)));
    const killedMs = performance.now();
    for (const id of cluster.ids) cluster.spawn(id);

    // Each server reports that it waits, and for how long, and serves nothing meanwhile.
    const waits = await Promise.all(
      cluster.ids.map(async (id) => {
        let seenMs = 0;
        await until(`${id} says that it recovers`, async () => {
          const own = (await cluster.status(id)).servers.find((server) => server.id === id);
          if (own?.state === 'serving') throw new Error('It never said so');
          if (own?.state !== 'recovering') return false;
          seenMs = own.recoveringMs;
          return true;
        });
        const ready = await ask(cluster.url(id), 'GET', '/readyz');
        return { id, seenMs, ready: ready.status };
      }),
    );
    for (const { id, seenMs, ready } of waits) {
      t.diagnostic(`${id} waits ${seenMs} ms more for leases from before its restart`);
      assert.ok(seenMs > 0 && seenMs < 3 * LEASE_MS, `${id}: recoveringMs is ${seenMs}`);
      assert.equal(ready, 503);
    }
    await cluster.ready();
    t.diagnostic(`ready ${Math.round(performance.now() - killedMs)} ms after the kill`);
    assert.ok(
      performance.now() - killedMs > LEASE_MS,
      'No lease is granted before all forgotten ones have ended',
    );
    await progress('after the restart');
  } finally {
    await Promise.all([...writers, names].map((writer) => writer.stop()));
  }

  for (const [index, { name }] of files.entries()) {
    const writer = writers[index] as RecordWriter;
    await cluster.current(`main/${name}`);
    for (const id of cluster.ids) {
      const answer = await ask(cluster.url(id), 'GET', `/v1/files/main/${name}`);
      assert.equal(answer.status, 200, answer.text.slice(0, 200));
      assert.deepEqual(writer.missing(answer.bytes), [], `${name} lacks acknowledged records on ${id}`);
    }
    t.diagnostic(`${name}: ${writer.acknowledged} records acknowledged, ${writer.doubtful.size} in doubt`);
  }
  for (const id of cluster.ids) {
    const answer = await ask(cluster.url(id), 'GET', '/v1/files/main/names/');
    assert.equal(answer.status, 200);
    const listed = (JSON.parse(answer.text) as { entries: { name: string }[] }).entries;
    const found = new Set(listed.map((entry) => `/names/${entry.name}`));
    assert.deepEqual(
      [...names.there].filter((name) => !found.has(name)),
      [],
      `Names are missing on ${id}`,
    );
    assert.deepEqual(
      [...names.gone].filter((name) => found.has(name)),
      [],
      `Removed names exist again on ${id}`,
    );
  }
  t.diagnostic(`${names.commands} commands of the catalog acknowledged`);
  await until('all is well', async () => (await cluster.status('s2')).verdict === 'healthy');
});
