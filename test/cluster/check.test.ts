/**
 * Goal: status, events, metrics and `leasehold check` all report a file with two member sets for one view.
 * Method: five real servers choose the members of a reserved number again when a file is created with it, as earlier
 * releases did; the contents of an unnamed creation are at the first set, and the file is created and written at the
 * second.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import type { Finding } from '../../wire/http-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import { type Mutation, plantedEnv } from '../planted/plant.ts';
import { command, type RunResult } from './cluster-mount.ts';
import { RealCluster, until } from './real-cluster.ts';

const VOLUME = 'v';
const FIRST = 'the history of the contents that got no name';
const SECOND = 'the history of the file that was made by the same number';

/** The members of a file are chosen at its creation, whatever members its number was reserved with. */
const CHOSEN_ANEW: readonly Mutation[] = [
  {
    file: 'catalog/command.ts',
    in: 'replicasOf',
    find: 'if ($members.length > 0) return $members;',
    replace: '',
  },
  {
    file: 'catalog/command.ts',
    find: '$reserved !== undefined && !$servers.every(({ id }) => $chosen.includes(id))',
    replace: 'false',
  },
];

let cluster: RealCluster;
let client: ClusterClient;
let root: number;

before(async () => {
  cluster = await RealCluster.start({ servers: 5, lease: '1s', environment: () => plantedEnv(CHOSEN_ANEW) });
  client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  await cluster.createVolume(VOLUME);
  root = (await client.query({ kind: 'volume', name: VOLUME })).volume.root;
});

after(async () => {
  await client.close();
  await cluster.stop();
});

function leasehold(...argv: string[]): Promise<RunResult> {
  return command([...argv, '--servers', cluster.urls.join(',')]);
}

/** What the servers find now. */
async function found(): Promise<readonly Finding[]> {
  return (await client.admin.check(0)).findings;
}

async function textAt(path: string): Promise<string> {
  return (await fetch(`${cluster.urls[0]}/v1/files/${VOLUME}${path}`)).text();
}

/** A name that is refused after the contents were stored: its number can still create a file. */
const REFUSED = 'n'.repeat(256);

/**
 * Creates a file with two member sets that share one server.
 * @returns its number, and the members of the reservation
 */
async function fork(name: string): Promise<{ inode: number; reserved: readonly string[] }> {
  for (let attempt = 0; attempt < 100; attempt++) {
    const { first, creatingServer, sets } = await client.reserveInodes(1, { volume: VOLUME });
    const reserved = sets?.[0] ?? [];
    const times = { accessedNs: null, modifiedNs: null, changedNs: null };
    const birth = { parent: root, name: REFUSED, inode: first, mode: 0o600, uid: 0, gid: 0, ...times };
    const [outcome] = await client.createWithContents(creatingServer, [
      { ...birth, contents: Buffer.from(FIRST) },
    ]);
    assert.equal(outcome?.kind === 'refused' && outcome.code, 'name-too-long');
    const { attributes } = await client.command({
      ...({ kind: 'create-file', mode: 0o640, uid: 3, gid: 4, exclusive: true } as const),
      place: { parent: root, name: `${name}-${attempt}` },
      reserved: { inode: first, owner: client.inodeOwner },
    });
    if (attributes.replicas.filter((server) => reserved.includes(server)).length !== 1) continue;
    const command = {
      kind: 'rename',
      mode: 'replace',
      from: { parent: root, name: `${name}-${attempt}` },
    } as const;
    await client.command({ ...command, to: { parent: root, name } });
    // A server of both sets uses its own record: if it orders the write, the write belongs to the history of the
    // reservation.
    const [other = ''] = attributes.replicas.filter((server) => !reserved.includes(server));
    const second = new ClusterClient({ world: systemWorld, servers: [cluster.url(other)] });
    const { primary } = await second.openFile(first, { replicas: [other] }).write(0, Buffer.from(SECOND));
    await second.close();
    if (reserved.includes(primary)) continue;
    return { inode: first, reserved };
  }
  throw new Error('No two sets share one server alone');
}

test('status, metrics and check report a file with two member sets', async () => {
  await until('nothing is found in a cluster without forks', async () => (await found()).length === 0);
  assert.equal((await leasehold('check')).code, 0);
  const { inode, reserved } = await fork('forked');
  await until('status reports it', async () => {
    const { verdict, reasons } = await cluster.status('s1');
    return (
      verdict === 'degraded' &&
      reasons.some((reason) => reason.includes(`File ${inode} has conflicting member sets`))
    );
  });
  assert.ok((await cluster.counted('leasehold_view_conflicts')) > 0);
  const { code, text } = await leasehold('check', '--json');
  assert.equal(code, 7);
  const { findings } = JSON.parse(text) as { readonly findings: readonly Finding[] };
  const ofFile = findings.filter(({ file }) => file === inode);
  assert.ok(ofFile.length > 0);
  for (const { kind, server, path } of ofFile) {
    assert.deepEqual([kind, path], ['members', `${VOLUME}:/forked`]);
    assert.ok(reserved.includes(server), `${server} has the members of the reservation`);
  }
});

test('a conflict is resolved by keeping one history as the file and the other under a second name', async () => {
  const path = `${VOLUME}:/forked`;
  const file = await client.resolve(VOLUME, '/forked');
  const finding = (await found()).find(({ path: named, members = [] }) => {
    return named === path && members.some((server) => !file.replicas.includes(server));
  });
  assert.ok(finding !== undefined);
  const unknown = await leasehold('resolve', path, '--keep', 's9');
  assert.notEqual(unknown.code, 0);
  assert.match(unknown.text, /Server s9 has no replica/);
  const { code, text } = await leasehold('resolve', path, '--keep', finding.server, '--json');
  assert.equal(code, 0, text);
  const { others } = JSON.parse(text) as { others: string[] };
  assert.equal(others.length, 1);
  assert.equal(await textAt('/forked'), FIRST);
  assert.equal(await textAt((others[0] ?? '').slice(VOLUME.length + 1)), SECOND);
  const attributes = await client.resolve(VOLUME, '/forked');
  assert.deepEqual([attributes.mode, attributes.uid, attributes.gid], [0o640, 3, 4]);
  const again = await leasehold('resolve', path, '--keep', finding.server);
  assert.match(again.text, /there is nothing to resolve/);
});
