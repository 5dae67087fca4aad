import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { rmSync } from 'node:fs';
import { after, test } from 'node:test';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import type { ServerInfo } from '../../wire/catalog-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import { type CliResult, runCli } from '../client/run-cli.ts';
import { ask } from '../http/ask.ts';
import { onlyLong } from '../long.ts';
import { RealCluster, until } from './real-cluster.ts';
import { RECORD_BYTES, RecordWriter, recordOf } from './record-writer.ts';

/**
 * Goal: servers join and leave, and files stay. One cluster of real processes runs through all cases, and all its first
 * servers are replaced at the end; every file that was ever acknowledged is read after each step.
 */
const FILES = 12;
const GRACE_MS = 1_500;
/** A machine with too few cores for all its processes. */
const MOVE_MS_MAX = 240_000;

/** How long a server may be down, for servers that start from now on. */
let replaceAfter = '6s';
const cluster = await RealCluster.start({
  environment: () => ({ LEASEHOLD_REPLACE_AFTER: replaceAfter }),
  flags: ['--gc-grace', `${GRACE_MS}ms`, '--compare-every', '4s', '--lease-idle', '1s'],
});
after(() => cluster.stop());
/** Servers that are part of the cluster and run. */
const members = new Set(cluster.ids);
await cluster.createVolume('main');

const contents = new Map<string, Buffer>();

function contentsOf(name: string): Buffer {
  const seed = createHash('sha256').update(name).digest();
  return Buffer.concat(Array.from({ length: 4_000 + name.length }, () => seed));
}

async function put(at: string, name: string): Promise<void> {
  const body = contentsOf(name);
  // An upload that takes longer than unlinked files are kept is collected before it has its name.
  await until(`${name} is stored`, async () => {
    const answer = await ask(cluster.url(at), 'PUT', `/v1/files/main/${name}`, { body });
    if (answer.status >= 300) throw new Error(`${answer.status} ${answer.text.slice(0, 300)}`);
    return true;
  });
  contents.set(name, body);
}

for (let number = 1; number <= FILES; number++) await put('s1', `file-${number}`);

function cli(...argv: readonly string[]): Promise<CliResult> {
  const servers = [...members].map((id) => cluster.url(id)).join(',');
  return runCli(argv, { env: { LEASEHOLD_SERVERS: servers } });
}

async function cliOk(...argv: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await cli(...argv);
  assert.equal(code, 0, `leasehold ${argv.join(' ')}: ${stderr}${stdout}`);
  return stdout;
}

type Listed = ServerInfo & { readonly replicas: number };

async function servers(): Promise<Map<string, Listed>> {
  const { servers: list } = JSON.parse(await cliOk('server', 'ls', '--all', '--json')) as {
    servers: Listed[];
  };
  return new Map(list.map((server) => [server.id, server]));
}

/** Reads every file at every server, and compares every byte. */
async function allAreThere(): Promise<void> {
  for (const id of members) {
    for (const [name, body] of contents) {
      const answer = await ask(cluster.url(id), 'GET', `/v1/files/main/${name}`);
      assert.equal(answer.status, 200, `${name} at ${id}: ${answer.text.slice(0, 300)}`);
      assert.ok(answer.bytes.equals(body), `${name} at ${id} has other bytes`);
    }
  }
}

/** Checks that each file is on so many servers, all of them members, and that all its replicas are current. */
async function allAreOn(count: number): Promise<void> {
  for (const name of contents.keys()) {
    await until(
      `${name} has ${count} current replicas`,
      async () => {
        const [asked] = members;
        const { view, replicas } = await cluster.info(asked as string, `main/${name}`);
        return (
          view.members.length === count &&
          view.members.every((member) => members.has(member)) &&
          replicas.filter(({ state }) => state === 'current').length === count
        );
      },
      MOVE_MS_MAX,
    );
  }
}

async function replicasOnDisk(id: string): Promise<number> {
  const { servers: all } = await cluster.status(id);
  return all.find((server) => server.id === id)?.replicas ?? -1;
}

test('more replicas than servers are refused, unless forced', async () => {
  const refused = await cli('volume', 'create', 'wide', '--replicas', '4');
  assert.equal(refused.code, 4, refused.stderr);
  assert.match(refused.stderr, /Cannot keep 4 replicas of each file of "wide": there are 3 servers/);
  await cliOk('volume', 'create', 'wide', '--replicas', '4', '--force');
  await cliOk('volume', 'rm', 'wide');
});

test('a server joins at run time; one is drained under a writer, and removed', async (t) => {
  await cluster.join('s4', ['s1', 's2', 's3'], ['--zone', 'rack-2']);
  members.add('s4');
  const [first] = [...(await servers()).values()].filter(({ id }) => id === 's4');
  assert.deepEqual([first?.state, first?.zone, first?.replicas], ['in', 'rack-2', 0]);

  const client = new ClusterClient({ world: systemWorld, servers: [cluster.url('s2')] });
  t.after(() => client.close());
  const place = { volume: 'main', path: 'journal' };
  const create = { kind: 'create-file', place, mode: 0o644, uid: 0, gid: 0, exclusive: true } as const;
  const { inode } = (await client.command(create)).attributes;
  const writer = new RecordWriter([cluster.url('s2'), cluster.url('s3')], inode, 0, 1);

  const drained = await cliOk('server', 'drain', 's1');
  assert.match(drained, /Server s1 is drained/);
  const acknowledged = writer.acknowledged;
  await until('writes go on after the move', async () => writer.acknowledged > acknowledged + 20);
  await writer.stop();
  assert.ok(writer.doubtful.size === 0, `${writer.doubtful.size} writes without an answer`);
  t.diagnostic(`longest time without a write: ${Math.round(writer.gapMs)} ms`);

  const after = (await servers()).get('s1');
  assert.deepEqual([after?.state, after?.replicas], ['draining', 0]);
  const { catalog } = await cluster.status('s2');
  assert.deepEqual(catalog.members.toSorted(), ['s2', 's3', 's4'], 'The catalog has moved, too');
  await until('the drained server keeps nothing on its disk', async () => (await replicasOnDisk('s1')) === 0);

  await cliOk('server', 'remove', 's1');
  members.delete('s1');
  const { bytes } = await ask(cluster.url('s4'), 'GET', '/v1/files/main/journal');
  for (let number = 0; number < writer.acknowledged; number++) {
    const record = bytes.subarray(number * RECORD_BYTES, (number + 1) * RECORD_BYTES);
    assert.ok(record.equals(recordOf(0, number)), `Record ${number} of ${writer.acknowledged} is lost`);
  }
  contents.set('journal', bytes);
  await cluster.kill('s1');
  await allAreOn(3);
  await allAreThere();
  await put('s4', 'after-the-removal');
  const { view } = await cluster.info('s2', 'main/after-the-removal');
  assert.ok(!view.members.includes('s1'), 'A removed server gets no new replicas');
});

test('a removed server that restarts learns that it was removed, and serves nothing', async (t) => {
  const heard = () => cluster.log('s1').split('this server was removed from the cluster').length;
  const before = heard();
  cluster.spawn('s1');
  t.after(() => cluster.kill('s1'));
  await until('s1 learns that it was removed, or finds no server to ask', async () => {
    const { status } = await ask(cluster.url('s1'), 'GET', '/readyz');
    assert.notEqual(status, 200);
    return heard() > before || cluster.log('s1').split('s1 is not in the configuration').length > 3;
  });
  await allAreThere();
});

test('a volume gets fewer and more replicas of each file; one file gets its own number', async () => {
  await cliOk('volume', 'set', 'main', '--replicas', '2');
  await allAreOn(2);
  await allAreThere();
  await cliOk('volume', 'set', 'main', '--replicas', '3');
  await allAreOn(3);
  const before = (await cluster.info('s2', 'main/file-1')).view.members;
  const [gone, stays] = before as [string, string];
  assert.match(await cliOk('replica', 'rm', 'main:/file-1', gone), /is on/);
  const shown = JSON.parse(await cliOk('replica', 'ls', 'main:/file-1', '--json')) as {
    view: { members: string[] };
  };
  assert.deepEqual(shown.view.members.toSorted(), before.filter((id) => id !== gone).toSorted());
  assert.match(await cliOk('replica', 'move', 'main:/file-1', stays, gone), new RegExp(gone));
  const twice = await cli('replica', 'add', 'main:/file-1', gone);
  assert.equal(twice.code, 4);
  assert.match(twice.stderr, new RegExp(`Server ${gone} holds main:/file-1 already`));
  assert.equal((await cli('replica', 'add', 'main:/file-1', 's1')).code, 4, 'A removed server gets none');
  await cliOk('replica', 'add', 'main:/file-1', stays);
  await allAreOn(3);
  await allAreThere();
});

test('a dead server is replaced by one that joins, at once if a command says that it is dead', async () => {
  await cluster.kill('s2');
  members.delete('s2');
  await cluster.join('s5', ['s3', 's4']);
  members.add('s5');
  assert.match(await cliOk('server', 'remove', 's2', '--dead'), /Server s2 is removed/);
  await allAreOn(3);
  await allAreThere();
  const { catalog } = await cluster.status('s3');
  assert.deepEqual(catalog.members.toSorted(), ['s3', 's4', 's5']);
});

test('a server that is down for too long is replaced without a command', {
  skip: onlyLong('test/membership/steward.test.ts'),
}, async () => {
  await cluster.join('s6', ['s4']);
  members.add('s6');
  await cluster.kill('s3');
  members.delete('s3');
  await until('the files of s3 are elsewhere', async () => (await servers()).get('s3')?.replicas === 0);
  await allAreOn(3);
  await allAreThere();
  await cluster.restart('s3');
  await until('what s3 still had is removed from its disk', async () => (await replicasOnDisk('s3')) === 0);
  members.add('s3');
  await allAreThere();
});

test('all servers stop and start again, also those that joined later', async () => {
  const running = [...members];
  // Servers that are killed from here on restart, and stay members however long a start takes.
  replaceAfter = '1h';
  await Promise.all(running.map((id) => cluster.kill(id)));
  for (const id of running) cluster.spawn(id);
  await cluster.ready(running);
  await allAreThere();
});

test('a server restarts after writes that no client repeats: its replicas are still brought up to date', async () => {
  const { view, file } = await cluster.info('s4', 'main/file-2');
  const away = view.members.find((member) => member !== 's4') as string;
  await cluster.kill(away);
  members.delete(away);
  const body = contentsOf('written while one was away');
  const at = cluster.url(members.values().next().value as string);
  const client = new ClusterClient({ world: systemWorld, servers: [at] });
  await client.openFile(file).write(0, body);
  await client.close();
  const before = contents.get('file-2') as Buffer;
  contents.set('file-2', Buffer.concat([body, before.subarray(body.length)]));
  await cluster.restart(away);
  members.add(away);
  const length = contents.get('file-2')?.length ?? 0;
  await until(`the replica on ${away} has what was written`, async () => {
    // No client opens the file: this reads the replica as it is.
    const path = `/v1/data/${file}?offset=0&length=${length}&consistency=stale`;
    const answer = await ask(cluster.url(away), 'GET', path, { headers: { 'leasehold-forwarded': '1' } });
    return answer.status === 200 && answer.bytes.equals(contents.get('file-2') as Buffer);
  });
});

test('a disk is replaced by an empty one: the server gets all its replicas again', {
  skip: onlyLong('test/simulation/cluster/wholes.test.ts'),
}, async () => {
  const held = (await servers()).get('s4')?.replicas ?? 0;
  assert.ok(held > 0);
  await cluster.kill('s4');
  rmSync(cluster.data('s4'), { recursive: true });
  cluster.spawn('s4');
  await cluster.ready(['s4']);
  members.add('s4');
  await until('s4 holds again what it held', async () => (await replicasOnDisk('s4')) >= held);
  await allAreOn(3);
  await allAreThere();
  const { bornAt } = (await servers()).get('s4') as Listed;
  assert.ok(bornAt > 1, 'It is known that earlier files may have been on the earlier disk');
});
