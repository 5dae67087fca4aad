import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import { Prng } from '../../base/prng.ts';
import type { RequestId } from '../../replica/operation.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import type { FileState } from '../../wire/http-api.ts';
import { FILE, SmallCluster, type SmallServer } from './small-cluster.ts';

const MEMBERS = ['a', 'b', 'c'];
const RECORD_BYTES = 8;
/** The file is sealed in the middle of the writes, and so of the cuts. */
const SEAL_AFTER = 25;
const PATIENCE_MS = 20_000;
const given = process.env.SEED;
const seeds = given === undefined ? [1, 2, 3] : [Number(given)];

/**
 * Goal: when a file is sealed while it is written and servers are disconnected from each other, each write is either
 * acknowledged and in the file for ever, or refused and not in it; and a server with the final seal always shows the
 * same.
 * Method: writers append records through servers at random, and repeat those with unknown outcome, while connections
 * are cut and healed; the test seals the file, at any server, until that succeeds.
 */
for (const seed of seeds) {
  test(`a file is sealed under faults (SEED=${seed})`, { timeout: 120_000 }, async (t) => {
    const prng = new Prng(seed);
    const cluster = new SmallCluster(MEMBERS, {
      attributes: async () => {
        const file = { inode: FILE, kind: 'file', live: true, view: 1, objectBytes: 4096 };
        return { ...file, replicas: MEMBERS, policy: 'read-only' } as unknown as Attributes;
      },
    });
    t.after(() => cluster.close());
    await cluster.ready();
    const { servers } = cluster;
    const some = (): SmallServer => servers[prng.integer(0, servers.length - 1)] as SmallServer;

    /** The final answer to a client that goes from server to server; null if it aborted. */
    const insist = async <Result>(
      ask: (at: SmallServer) => Promise<Result>,
    ): Promise<Result | 'sealed' | null> => {
      const deadlineMs = performance.now() + PATIENCE_MS;
      while (performance.now() < deadlineMs) {
        try {
          return await ask(some());
        } catch (error) {
          if (!(error instanceof ServiceError)) throw error;
          if (error.code === 'sealed') return 'sealed';
          assert.ok(['retry', 'redirect'].includes(error.remedy), `${error.code}: ${error.message}`);
          await delay(10);
        }
      }
      return null;
    };

    const acknowledged = new Set<string>();
    const refused = new Set<string>();
    const writer = async (session: number): Promise<void> => {
      for (let number = 1; ; number++) {
        const record = `${session}:${number}`.padEnd(RECORD_BYTES, '.');
        const request: RequestId = { session, number, since: 0 };
        const outcome = await insist((at) => at.files.write(FILE, request, 'append', Buffer.from(record)));
        assert.notEqual(outcome, null, 'Every writer gets a final answer');
        if (outcome !== 'sealed') acknowledged.add(record);
        else {
          refused.add(record);
          return;
        }
        await delay(1);
      }
    };
    let isOver = false;
    /**
     * Disconnects the primary from the others, sometimes for longer than its lease: another takes over in the middle.
     */
    const troubles = async (): Promise<void> => {
      while (!isOver) {
        const primary = servers.find(({ host }) => host.loaded(FILE)?.isPrimary === true) ?? some();
        for (const other of servers) if (other !== primary) cluster.network.cut(primary.id, other.id);
        await delay(prng.integer(20, 1_000));
        cluster.network.heal();
        // So little that a seal rarely succeeds.
        await delay(prng.integer(2, 60));
      }
    };
    /** A server that answers by itself shows the same, each time. */
    const finals = new Set<string>();
    const look = async (): Promise<void> => {
      for (const { files, store } of servers) {
        if (store.record(FILE) === null || store.attributes(FILE).seal !== 'final') continue;
        const { bytes } = await files.read(FILE, 0, 1_000_000);
        finals.add(Buffer.from(bytes).toString('latin1'));
      }
    };
    const looks = async (): Promise<void> => {
      while (!isOver) {
        await look();
        await delay(5);
      }
    };

    const trouble = troubles();
    const looking = looks();
    const writers = [1, 2, 3, 4, 5, 6].map((session) => writer(session));
    while (acknowledged.size < SEAL_AFTER) await delay(5);
    const sealed = (await insist((at) => at.files.seal(FILE))) as FileState | null;
    assert.equal(sealed?.sealed, true);
    await Promise.all(writers);
    isOver = true;
    await Promise.all([trouble, looking]);
    cluster.network.heal();

    await insist((at) => at.files.becomePrimary(FILE));
    const deadlineMs = performance.now() + PATIENCE_MS;
    while (servers.some(({ store }) => store.attributes(FILE).seal !== 'final')) {
      assert.ok(performance.now() < deadlineMs, 'All replicas are brought up to date');
      await delay(10);
    }
    await look();
    assert.equal(finals.size, 1, 'No server ever showed anything else');
    const [contents] = [...finals] as [string];
    assert.equal(contents.length, sealed?.sizeBytes);
    const records: readonly string[] = contents.match(/.{8}/g) ?? [];
    assert.equal(new Set(records).size, records.length, 'No record is there twice');
    for (const record of acknowledged) assert.ok(records.includes(record), `${record} was acknowledged`);
    for (const record of refused) assert.ok(!records.includes(record), `${record} was refused`);
    assert.equal(records.length, acknowledged.size);
    assert.deepEqual(cluster.fatal, []);
    t.diagnostic(`${acknowledged.size} records, then the seal; ${refused.size} were refused`);
  });
}
