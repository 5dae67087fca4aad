/**
 * Goal: a mount that reads the disks of servers on its machine shows what any other mount would, while files change and
 * servers die.
 * Method: a real cluster and mounts. A writer stamps each object with a number that only grows; a reader finds whole
 * objects, none older than what was acknowledged before it opened the file.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { request } from 'node:http';
import { after, test } from 'node:test';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { uploadFile } from '../../client/transfer/upload.ts';
import { HEADER_LOCAL_PROOF, type LocalAnswer } from '../../wire/locations.ts';
import { systemWorld } from '../../world/system-world.ts';
import { ask } from '../http/ask.ts';
import { ClusterMount } from './cluster-mount.ts';
import { RealCluster } from './real-cluster.ts';

const obstacle = await mountObstacle();
const skip = obstacle === null ? false : `Nothing can be mounted: ${obstacle}`;
const MIB = 1024 * 1024;
const OBJECT_BYTES = 64 * 1024;
const FILE_BYTES = 24 * MIB;
const OBJECTS = FILE_BYTES / OBJECT_BYTES;

test('a mount on the machine of its servers', { skip, timeout: 300_000 }, async (t) => {
  const cluster = await RealCluster.start();
  after(() => cluster.stop());
  await cluster.createVolume('main');
  const mount = await ClusterMount.start(cluster, 'main');
  after(() => mount.stop());
  const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  after(() => client.close());
  const sent = await ClusterMount.start(cluster, 'main', '-o', 'local_reads=off');
  after(() => sent.stop());

  const upload = async (name: string, bytes: Uint8Array): Promise<number> => {
    async function* source(): AsyncGenerator<Uint8Array> {
      yield bytes;
    }
    await uploadFile(client, 'main', `/${name}`, source());
    return (await client.resolve('main', `/${name}`)).inode;
  };
  const located = (): Promise<number> => cluster.counted('leasehold_located_bytes_total');

  await t.test("reads a server's replica from disk, unless an option forbids it", async () => {
    const bytes = randomBytes(FILE_BYTES + 100_001);
    await upload('first', bytes);
    assert.ok(bytes.equals(await readFile(sent.path('first'))));
    assert.equal(await located(), 0);
    // The first file shows which disks can be read.
    for (let number = 1; (await located()) < FILE_BYTES / 2; number++) {
      assert.ok(number < 20, 'It reads the disk once it knows that it can');
      await upload(`again${number}`, bytes);
      assert.ok(bytes.equals(await readFile(mount.path(`again${number}`))));
    }
  });

  await t.test(
    'servers describe their disk to no client on another machine, or that cannot read the folder',
    async () => {
      const inode = await upload('told', randomBytes(10));
      const [url] = cluster.urls as [string];
      const { status, text } = await ask(url, 'GET', '/v1/local');
      assert.equal(status, 200);
      assert.equal((JSON.parse(text) as LocalAnswer).folder, cluster.data('s1'));
      const path = `/v1/data/${inode}/locations?offset=0&length=10`;
      for (const proof of ['', '0'.repeat(64)]) {
        const answer = await ask(url, 'GET', path, { headers: { [HEADER_LOCAL_PROOF]: proof } });
        assert.equal(answer.status, 403, answer.text);
      }
      // From another address, as another machine has.
      const { hostname, port } = new URL(url);
      const elsewhere = await new Promise((resolve, reject) => {
        const options = { host: hostname, port, path: '/v1/local', localAddress: '127.0.0.2', agent: false };
        const asked = request(options, (response) => {
          response.resume();
          resolve(response.statusCode);
        });
        asked.on('error', reject);
        asked.end();
      });
      assert.equal(elsewhere, 404);
    },
  );

  await t.test('sees whole objects, none of them outdated, while others write and servers die', async () => {
    const stamped = (stamp: number): Buffer => {
      const object = Buffer.alloc(OBJECT_BYTES, stamp & 0xff);
      object.writeUInt32LE(stamp, 0);
      return object;
    };
    const inode = await upload('stamped', Buffer.concat(Array.from({ length: OBJECTS }, () => stamped(1))));
    const handle = client.openFile(inode, { replicas: cluster.ids });
    const acknowledged = new Uint32Array(OBJECTS).fill(1);
    const asked = new Uint32Array(OBJECTS).fill(1);
    let isOver = false;
    let rounds = 0;
    const writing = (async () => {
      for (let stamp = 2; !isOver; stamp++) {
        const at = (stamp * 7919) % OBJECTS;
        asked[at] = stamp;
        await handle.write(at * OBJECT_BYTES, stamped(stamp));
        acknowledged[at] = stamp;
      }
    })();
    const look = async (): Promise<void> => {
      const least = Uint32Array.from(acknowledged);
      const bytes = await readFile(mount.path('stamped'));
      assert.equal(bytes.length, FILE_BYTES);
      for (let at = 0; at < OBJECTS; at++) {
        const object = bytes.subarray(at * OBJECT_BYTES, (at + 1) * OBJECT_BYTES);
        const stamp = object.readUInt32LE(0);
        const most = asked[at] as number;
        assert.ok(stamp >= (least[at] as number) && stamp <= most, `Object ${at} of stamp ${stamp}`);
        assert.ok(object.equals(stamped(stamp)), `Object ${at} is of one write`);
      }
      rounds++;
    };
    const before = await located();
    for (let round = 0; round < 5; round++) await look();
    assert.ok((await located()) > before, 'It was read from the disk');
    const primary = await cluster.primaryOf('main/stamped');
    await cluster.kill(primary);
    for (let round = 0; round < 5; round++) await look();
    await cluster.restart(primary);
    for (let round = 0; round < 3; round++) await look();
    isOver = true;
    await writing;
    assert.equal(rounds, 13);
    // Locations are valid for longer than they are read: hardly any lookup fails.
    assert.ok((await cluster.counted('leasehold_local_misses_total')) < 20);
  });
});
