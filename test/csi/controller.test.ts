/**
 * Goal: the Controller and Identity services keep the rules of the CSI specification: repeated calls are completed, and
 * failures have the codes of its tables.
 * Method: a client of our own plays calls against a plugin, in a process of its own, of a cluster of three servers.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createConnection } from 'node:net';
import { after, before, test } from 'node:test';
import { printedBy, runCli } from '../client/run-cli.ts';
import { RealCluster, until } from '../cluster/real-cluster.ts';
import { mounted, Plugin, PluginFolder } from './plugin.ts';

const MIB = 1024 * 1024;

let cluster: RealCluster;
let plugin: Plugin;
const folder = new PluginFolder();

interface Volume {
  readonly volumeId: string;
  readonly capacityBytes: string;
  readonly volumeContext: Readonly<Record<string, string>>;
  readonly contentSource: { readonly snapshot: object | null; readonly volume: object | null } | null;
  readonly accessibleTopology: readonly { readonly segments: object }[];
}
interface Snapshot {
  readonly snapshotId: string;
  readonly sourceVolumeId: string;
  readonly sizeBytes: string;
  readonly readyToUse: boolean;
}
interface ListedVolumes {
  readonly entries: readonly { readonly volume: Volume }[];
  readonly nextToken: string;
}
interface ListedSnapshots {
  readonly entries: readonly { readonly snapshot: Snapshot }[];
  readonly nextToken: string;
}

function start(): Promise<Plugin> {
  const servers = ['--servers', cluster.urls.join(',')];
  return Plugin.start(folder, ['--mode', 'controller', '--topology', ...servers]);
}

before(async () => {
  cluster = await RealCluster.start();
  await leasehold('server', 'zone', 's1', 'east');
  await leasehold('server', 'zone', 's2', 'west');
  await leasehold('server', 'zone', 's3', 'west');
  plugin = await start();
});

after(async () => {
  await plugin?.kill('SIGTERM');
  await cluster?.stop();
  folder.remove();
});

function leasehold(...argv: string[]): Promise<string> {
  return printedBy([...argv, '--servers', cluster.urls.join(',')]);
}

function wanted(name: string, more: object = {}): object {
  return {
    name,
    volumeCapabilities: [mounted()],
    capacityRange: { requiredBytes: 10 * MIB },
    ...more,
  };
}

async function create(name: string, more: object = {}): Promise<Volume> {
  const request = wanted(name, more);
  const { volume } = await plugin.call<{ volume: Volume }>('CreateVolume', request);
  // Each call may be repeated.
  assert.deepEqual((await plugin.call<{ volume: Volume }>('CreateVolume', request)).volume, volume);
  return volume;
}

async function put(volume: string, path: string, text: string): Promise<void> {
  writeFileSync(folder.path('contents'), text);
  await leasehold('put', folder.path('contents'), `${volume}:${path}`);
}

async function remove(volumeId: string): Promise<void> {
  await plugin.call('DeleteVolume', { volumeId });
  await plugin.call('DeleteVolume', { volumeId });
}

test('the plugin says what it is, and is ready once the cluster has answered', async () => {
  const info = await plugin.call('GetPluginInfo');
  assert.equal(info.name, 'csi.leasehold');
  assert.match(String(info.vendorVersion), /^\d+\.\d+\.\d+$/);
  const { capabilities } = await plugin.call<{
    capabilities: { service: { type: string } | null; volumeExpansion: { type: string } | null }[];
  }>('GetPluginCapabilities');
  assert.deepEqual(
    capabilities.map(({ service, volumeExpansion }) => service?.type ?? volumeExpansion?.type),
    ['CONTROLLER_SERVICE', 'VOLUME_ACCESSIBILITY_CONSTRAINTS', 'ONLINE'],
  );
  assert.deepEqual(await plugin.call('Probe'), { ready: { value: true } });
  // The node's calls are those of another process.
  assert.equal(await plugin.codeOf('NodeGetInfo', {}), 'UNIMPLEMENTED');
});

test('a volume is made, listed, expanded and deleted', async () => {
  const parameters = { replicas: '3', policy: 'all', mode: '0770', gid: '2000', subdir: 'a/b' };
  const volume = await create('pvc-1', { parameters: { ...parameters, 'csi.storage.k8s.io/pvc/name': 'x' } });
  assert.equal(volume.volumeId, 'pvc-1');
  assert.equal(volume.capacityBytes, String(10 * MIB));
  assert.deepEqual(volume.volumeContext, { subdir: '/a/b' });
  const root = JSON.parse(await leasehold('stat', 'pvc-1:/', '--json')) as { mode: number; gid: number };
  assert.deepEqual([root.mode, root.gid], [0o770, 2000]);
  await leasehold('stat', 'pvc-1:/a/b');

  const other = wanted('pvc-1', { parameters: { ...parameters, policy: 'quorum' } });
  assert.equal(await plugin.codeOf('CreateVolume', other), 'ALREADY_EXISTS');
  const larger = wanted('pvc-1', { parameters, capacityRange: { requiredBytes: 11 * MIB } });
  assert.equal(await plugin.codeOf('CreateVolume', larger), 'ALREADY_EXISTS');
  const smaller = wanted('pvc-1', { parameters, capacityRange: { limitBytes: 9 * MIB } });
  assert.equal(await plugin.codeOf('CreateVolume', smaller), 'ALREADY_EXISTS');

  const expand = { volumeId: 'pvc-1', capacityRange: { requiredBytes: 20 * MIB } };
  for (const _ of [1, 2])
    assert.deepEqual(await plugin.call('ControllerExpandVolume', expand), {
      capacityBytes: String(20 * MIB),
      nodeExpansionRequired: false,
    });
  const shrunk = { volumeId: 'pvc-1', capacityRange: { requiredBytes: MIB, limitBytes: 2 * MIB } };
  assert.equal(await plugin.codeOf('ControllerExpandVolume', shrunk), 'OUT_OF_RANGE');
  // The creation of an expanded volume can still be repeated.
  await plugin.call('CreateVolume', wanted('pvc-1', { parameters }));

  await put('pvc-1', '/a/file', 'contents');
  await remove('pvc-1');
  assert.equal((await runCli(['ls', 'pvc-1:/', '--servers', cluster.urls.join(',')])).code, 3);
  assert.equal(await plugin.codeOf('ControllerExpandVolume', expand), 'NOT_FOUND');
});

test('names of any form have volumes of their own, and volumes of others are left alone', async () => {
  const names = ['PVC-1', 'pvc 1', 'ü', 'x'.repeat(128), 'csi-0123456789012345678901234567890123456789'];
  const volumes = await Promise.all(names.map((name) => create(name)));
  const ids = volumes.map(({ volumeId }) => volumeId);
  assert.equal(new Set(ids).size, names.length);
  for (const id of ids) assert.match(id, /^csi-[0-9a-f]{40}$/);
  await Promise.all(ids.map(remove));

  await leasehold('volume', 'create', 'main');
  await put('main', '/mine', 'mine');
  assert.equal(await plugin.codeOf('CreateVolume', wanted('main')), 'ALREADY_EXISTS');
  assert.equal(await plugin.codeOf('CreateVolume', wanted('csi-records')), 'ALREADY_EXISTS');
  assert.equal(await plugin.codeOf('DeleteVolume', { volumeId: 'main' }), 'FAILED_PRECONDITION');
  assert.equal(await plugin.codeOf('DeleteVolume', { volumeId: 'csi-records' }), 'FAILED_PRECONDITION');
  await leasehold('get', 'main:/mine', folder.path('mine'));
  assert.equal(readFileSync(folder.path('mine'), 'utf8'), 'mine');
});

test('snapshots are made, listed, restored and deleted', async () => {
  await create('source');
  await put('source', '/file', 'before');
  const make = { sourceVolumeId: 'source', name: 'snapshot-1' };
  const { snapshot } = await plugin.call<{ snapshot: Snapshot }>('CreateSnapshot', make);
  assert.deepEqual((await plugin.call<{ snapshot: Snapshot }>('CreateSnapshot', make)).snapshot, snapshot);
  assert.equal(snapshot.snapshotId, 'source@snapshot-1');
  assert.equal(snapshot.sizeBytes, '6');
  assert.equal(snapshot.readyToUse, true);
  await put('source', '/file', 'after');
  await create('other');
  assert.equal(await plugin.codeOf('CreateSnapshot', { ...make, sourceVolumeId: 'other' }), 'ALREADY_EXISTS');
  assert.equal(await plugin.codeOf('CreateSnapshot', { name: 'x', sourceVolumeId: 'absent' }), 'NOT_FOUND');
  await plugin.call('CreateSnapshot', { sourceVolumeId: 'other', name: 'snapshot-2' });

  const listed = (request: object) => plugin.call<ListedSnapshots>('ListSnapshots', request);
  const idsOf = ({ entries }: ListedSnapshots) => entries.map((one) => one.snapshot.snapshotId);
  assert.deepEqual(idsOf(await listed({})), ['source@snapshot-1', 'other@snapshot-2']);
  assert.deepEqual(idsOf(await listed({ sourceVolumeId: 'other' })), ['other@snapshot-2']);
  assert.deepEqual(idsOf(await listed({ snapshotId: 'source@snapshot-1' })), ['source@snapshot-1']);
  for (const snapshotId of ['source@absent', 'absent@snapshot-1', '?'])
    assert.deepEqual(idsOf(await listed({ snapshotId })), []);
  const page = await listed({ maxEntries: 1 });
  assert.deepEqual(idsOf(page), ['source@snapshot-1']);
  assert.deepEqual(idsOf(await listed({ startingToken: page.nextToken })), ['other@snapshot-2']);

  const volumeContentSource = { snapshot: { snapshotId: snapshot.snapshotId } };
  const restored = await create('restored', { volumeContentSource });
  assert.deepEqual(restored.contentSource?.snapshot, { snapshotId: snapshot.snapshotId });
  await leasehold('get', 'restored:/file', folder.path('restored'));
  assert.equal(readFileSync(folder.path('restored'), 'utf8'), 'before');
  assert.equal(await plugin.codeOf('CreateVolume', wanted('restored')), 'ALREADY_EXISTS');
  const tooSmall = { volumeContentSource, capacityRange: { limitBytes: 3 } };
  assert.equal(await plugin.codeOf('CreateVolume', wanted('small', tooSmall)), 'OUT_OF_RANGE');
  for (const snapshotId of ['source@absent', 'absent@snapshot-1', 'source']) {
    const absent = { volumeContentSource: { snapshot: { snapshotId } } };
    assert.equal(await plugin.codeOf('CreateVolume', wanted('none', absent)), 'NOT_FOUND');
  }

  assert.equal(await plugin.codeOf('DeleteVolume', { volumeId: 'source' }), 'FAILED_PRECONDITION');
  await leasehold('snapshot', 'create', 'source@own');
  assert.equal(await plugin.codeOf('DeleteSnapshot', { snapshotId: 'source@own' }), 'FAILED_PRECONDITION');
  await leasehold('snapshot', 'rm', 'source@own');
  for (const snapshotId of [
    'source@snapshot-1',
    'source@snapshot-1',
    'other@snapshot-2',
    'source@absent',
    '?',
  ])
    await plugin.call('DeleteSnapshot', { snapshotId });
  for (const volume of ['source', 'other', 'restored']) await remove(volume);
});

test('a clone has contents, owners, modes and links of its source, and leaves no snapshot', async () => {
  await create('original', { parameters: { uid: '7', mode: '0711' } });
  await put('original', '/file', 'contents');
  await leasehold('mkdir', '-p', 'original:/directory/below');
  const volumeContentSource = { volume: { volumeId: 'original' } };
  await create('clone', { volumeContentSource, parameters: { ownCatalog: 'true' } });
  await put('original', '/file', 'changed');
  await leasehold('get', 'clone:/file', folder.path('clone'));
  assert.equal(readFileSync(folder.path('clone'), 'utf8'), 'contents');
  await leasehold('stat', 'clone:/directory/below');
  const { mode, uid } = JSON.parse(await leasehold('stat', 'clone:/', '--json')) as Record<string, number>;
  assert.deepEqual([mode, uid], [0o711, 7]);
  assert.equal(await leasehold('snapshot', 'ls', 'original'), '');
  const absent = { volumeContentSource: { volume: { volumeId: 'absent' } } };
  assert.equal(await plugin.codeOf('CreateVolume', wanted('none', absent)), 'NOT_FOUND');
  for (const volume of ['clone', 'original']) await remove(volume);
});

test('calls for one volume at the same time: one does it, the others are refused until then', async () => {
  const codes = await Promise.all(
    Array.from({ length: 8 }, () => plugin.codeOf('CreateVolume', wanted('at-once'))),
  );
  assert.ok(codes.includes('OK'));
  assert.deepEqual([...new Set(codes)].sort(), ['ABORTED', 'OK']);
  await create('at-once');
  const { entries } = await plugin.call<ListedVolumes>('ListVolumes', {});
  assert.equal(entries.filter(({ volume }) => volume.volumeId === 'at-once').length, 1);
  await remove('at-once');
});

test('a call whose caller waits no longer, and during which a server dies, is completed all the same', async () => {
  await plugin.callFor(30, 'CreateVolume', wanted('abandoned'));
  await cluster.kill('s3');
  await until('a repetition answers', async () => {
    const code = await plugin.codeOf('CreateVolume', wanted('abandoned'));
    assert.ok(['ABORTED', 'UNAVAILABLE', 'OK'].includes(code), code);
    return code === 'OK';
  });
  await remove('abandoned');
  await cluster.restart('s3');
});

test('volumes are listed in pages', async () => {
  const names = ['list-a', 'list-b', 'list-c'];
  for (const name of names) await create(name);
  const found: string[] = [];
  for (let startingToken = ''; ; ) {
    const page = await plugin.call<ListedVolumes>('ListVolumes', { maxEntries: 2, startingToken });
    assert.ok(page.entries.length <= 2);
    for (const { volume } of page.entries) {
      assert.equal(volume.capacityBytes, String(10 * MIB));
      found.push(volume.volumeId);
    }
    if (page.nextToken === '') break;
    startingToken = page.nextToken;
  }
  assert.deepEqual(found, names);
  assert.equal(await plugin.codeOf('ListVolumes', { startingToken: 'No Token' }), 'ABORTED');
  assert.equal(await plugin.codeOf('ListVolumes', { maxEntries: -1 }), 'INVALID_ARGUMENT');
  for (const name of names) await remove(name);
});

test('replicas follow the zones of nodes, if the parameters say so', async () => {
  const inZone = (zone: string) => ({ segments: { 'csi.leasehold/zone': zone } });
  const accessibilityRequirements = {
    requisite: [inZone('west'), inZone('east')],
    preferred: [inZone('west'), inZone('east')],
  };
  const parameters = { replicas: '2', topology: 'required' };
  const bound = await create('bound', { parameters, accessibilityRequirements });
  assert.deepEqual(bound.accessibleTopology, [inZone('west')]);
  const preferred = { replicas: '2', topology: 'preferred' };
  const near = await create('near', { parameters: preferred, accessibilityRequirements });
  assert.deepEqual(near.accessibleTopology, []);
  const { volumes } = JSON.parse(await leasehold('volume', 'ls', '--json')) as {
    volumes: { name: string; zones?: string[] }[];
  };
  for (const name of ['bound', 'near'])
    assert.deepEqual(volumes.find((one) => one.name === name)?.zones, ['west']);
  const absent = { requisite: [inZone('north')], preferred: [] };
  const nowhere = wanted('nowhere', { parameters, accessibilityRequirements: absent });
  assert.equal(await plugin.codeOf('CreateVolume', nowhere), 'RESOURCE_EXHAUSTED');

  const capacity = async (request: object) => {
    const answer = await plugin.call<{ availableCapacity: string }>('GetCapacity', request);
    return Number(answer.availableCapacity);
  };
  assert.ok((await capacity({ volumeCapabilities: [mounted()] })) > 0);
  assert.ok((await capacity({ parameters, accessibleTopology: inZone('west') })) > 0);
  assert.equal(await capacity({ parameters, accessibleTopology: inZone('east') }), 0);
  for (const name of ['bound', 'near']) await remove(name);
});

test('capabilities are confirmed or refused with a reason', async () => {
  await create('validated');
  const validate = (more: object) =>
    plugin.call<{ confirmed: object | null; message: string }>('ValidateVolumeCapabilities', {
      volumeId: 'validated',
      volumeCapabilities: [mounted('SINGLE_NODE_SINGLE_WRITER', 'noatime', 'cache=strict')],
      ...more,
    });
  assert.notEqual((await validate({})).confirmed, null);
  const refused = await validate({ volumeCapabilities: [mounted('MULTI_NODE_MULTI_WRITER', 'no_such')] });
  assert.equal(refused.confirmed, null);
  assert.match(refused.message, /no_such/);
  const absent = { volumeId: 'absent', volumeCapabilities: [mounted()] };
  assert.equal(await plugin.codeOf('ValidateVolumeCapabilities', absent), 'NOT_FOUND');
  await remove('validated');
});

test('wrong input is refused with a reason, and nothing is made', async () => {
  const refused: readonly (readonly [object, string])[] = [
    [wanted(''), 'name'],
    [wanted('x'.repeat(129)), 'longer than 128 bytes'],
    [wanted('a\u0001'), 'control character'],
    [wanted('a', { volumeCapabilities: [] }), 'capabilities'],
    [wanted('a', { volumeCapabilities: [{ block: {}, accessMode: { mode: 1 } }] }), 'block device'],
    [wanted('a', { volumeCapabilities: [{ mount: {} }] }), 'access mode'],
    [wanted('a', { volumeCapabilities: [{ mount: {}, accessMode: { mode: 99 } }] }), 'access mode'],
    [wanted('a', { volumeCapabilities: [{ accessMode: { mode: 1 } }] }), 'access type'],
    [wanted('a', { volumeCapabilities: [{ mount: { fsType: 'ext4' }, accessMode: { mode: 1 } }] }), 'ext4'],
    [
      wanted('a', { volumeCapabilities: [mounted('SINGLE_NODE_WRITER', 'token_file=/etc/shadow')] }),
      'token_file',
    ],
    [wanted('a', { volumeCapabilities: [mounted('SINGLE_NODE_WRITER', 'noatime,su\\id')] }), 'suid'],
    [wanted('a', { volumeCapabilities: [mounted('SINGLE_NODE_WRITER', 'servers=x')] }), 'servers'],
    [wanted('a', { parameters: { replica: '3' } }), 'no parameter "replica"'],
    [wanted('a', { parameters: { constructor: '3' } }), 'no parameter "constructor"'],
    [wanted('a', { parameters: { replicas: '99' } }), 'from 1 to 15'],
    [wanted('a', { parameters: { subdir: 'a/../..' } }), '"\\.\\."'],
    [wanted('a', { capacityRange: { requiredBytes: -1 } }), 'not negative'],
    [wanted('a', { secrets: { password: 'x' } }), 'no secret "password"'],
    [wanted('a', { secrets: { token: 'short-secret' } }), 'no token'],
    [wanted('a', { mutableParameters: { a: 'b' } }), 'mutable'],
    [wanted('a', { volumeContentSource: {} }), 'source'],
  ];
  for (const [request, reason] of refused) {
    await assert.rejects(
      plugin.call('CreateVolume', request),
      (error: Error & { code: number; details: string }) => {
        assert.match(error.details, new RegExp(reason), JSON.stringify(request));
        assert.equal(error.code, 3, error.details);
        return true;
      },
    );
  }
  assert.equal(
    await plugin.codeOf('CreateVolume', wanted('a', { capacityRange: { requiredBytes: 2, limitBytes: 1 } })),
    'OUT_OF_RANGE',
  );
  for (const method of [
    'DeleteVolume',
    'DeleteSnapshot',
    'CreateSnapshot',
    'ControllerExpandVolume',
  ] as const)
    assert.equal(await plugin.codeOf(method, {}), 'INVALID_ARGUMENT', method);
  assert.deepEqual((await plugin.call<ListedVolumes>('ListVolumes', {})).entries, []);
  assert.doesNotMatch(plugin.log, /short-secret/);
});

/** Requests of any contents, the same for a seed. */
function* randomRequests(
  seed: number,
  count: number,
): Generator<readonly [(typeof METHODS)[number], object]> {
  let state = seed;
  const draw = (below: number): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  const one = <Value>(values: readonly Value[]): Value => values[draw(values.length)] as Value;
  const text = (): string =>
    one(['', '../..', 'a/b', 'pvc@', '@', '\u0000', 'ü'.repeat(40), 'x'.repeat(5_000), '1e9']);
  const map = (): object => ({ [one(['replicas', 'subdir', 'token', 'zones', text()])]: text() });
  const capability = (): object =>
    one([{}, { block: {} }, { mount: { mountFlags: [text()] }, accessMode: { mode: draw(12) } }, mounted()]);
  for (let index = 0; index < count; index++) {
    yield [
      one(METHODS),
      {
        ...{
          name: text(),
          volumeId: text(),
          sourceVolumeId: text(),
          snapshotId: text(),
          startingToken: text(),
        },
        maxEntries: draw(3) - 1,
        capacityRange: one([null, { requiredBytes: -draw(9), limitBytes: draw(9) }]),
        volumeCapabilities: [capability(), capability()].slice(draw(3)),
        volumeContentSource: one([
          null,
          {},
          { snapshot: { snapshotId: text() } },
          { volume: { volumeId: text() } },
        ]),
        accessibilityRequirements: one([
          null,
          { requisite: [{ segments: { 'csi.leasehold/zone': text() } }] },
        ]),
        ...{ parameters: map(), secrets: one([{}, {}, map()]), volumeContext: map() },
      },
    ];
  }
}

const METHODS = [
  'CreateVolume',
  'DeleteVolume',
  'ValidateVolumeCapabilities',
  'ListVolumes',
  'GetCapacity',
  'ControllerExpandVolume',
  'CreateSnapshot',
  'DeleteSnapshot',
  'ListSnapshots',
] as const;

test('requests of any contents, and bytes that are no requests, are refused by a code of the specification', async () => {
  const codes = new Set<string>();
  for (const [method, request] of randomRequests(17, 300)) {
    const code = await plugin.codeOf(method, request);
    assert.ok(
      !['INTERNAL', 'UNKNOWN', 'UNAVAILABLE'].includes(code),
      `${method} ${JSON.stringify(request)}: ${code}`,
    );
    codes.add(code);
  }
  assert.ok(codes.size > 3, [...codes].join());
  for (const bytes of [
    'GET / HTTP/1.1\r\n\r\n',
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff',
    '\0'.repeat(100),
  ]) {
    const connection = createConnection(folder.path('csi.sock'));
    await once(connection, 'connect');
    connection.on('error', () => undefined);
    connection.end(bytes);
    await once(connection.resume(), 'close');
  }
  const { entries } = await plugin.call<ListedVolumes>('ListVolumes', {});
  for (const { volume } of entries) await remove(volume.volumeId);
});

test('what a killed plugin began is completed by a repetition, or removed by a deletion', async () => {
  await create('big');
  for (const name of ['a', 'b', 'c']) await put('big', `/${name}`, name.repeat(1_000_000));
  const volumeContentSource = { volume: { volumeId: 'big' } };
  for (const outcome of ['repeated', 'deleted']) {
    const request = wanted('half', { volumeContentSource });
    let isAnswered = false;
    const failed = plugin.codeOf('CreateVolume', request).finally(() => {
      isAnswered = true;
    });
    const hasBegun = async () => isAnswered || (await leasehold('snapshot', 'ls', 'big')) !== '';
    await until('the copy has begun', hasBegun);
    await plugin.kill('SIGKILL');
    // It may have answered nothing, although all is done.
    const isDone = (await leasehold('snapshot', 'ls', 'big')) === '';
    assert.notEqual(isDone ? '' : await failed, 'OK');
    plugin = await start();
    const { entries } = await plugin.call<ListedVolumes>('ListVolumes', {});
    const listed = entries.map(({ volume }) => volume.volumeId);
    if (!isDone) assert.deepEqual(listed, ['big'], 'An unfinished volume is not listed');
    if (outcome === 'repeated') {
      await create('half', { volumeContentSource });
      for (const name of ['a', 'b', 'c']) {
        await leasehold('get', `half:/${name}`, folder.path('half'));
        assert.equal(readFileSync(folder.path('half'), 'utf8'), name.repeat(1_000_000));
      }
    }
    await remove('half');
    assert.equal(await leasehold('snapshot', 'ls', 'big'), '', 'Nothing is left of the copy');
  }
  await remove('big');
});

test('a call during an outage fails as temporary, and its repetition succeeds; a plugin that was ready stays so', async () => {
  await create('lasting');
  await Promise.all(['s2', 's3'].map((id) => cluster.kill(id)));
  await plugin.call('Probe');
  await cluster.kill('s1');
  assert.deepEqual(await plugin.call('Probe'), { ready: { value: true } });
  await plugin.kill('SIGTERM');
  const servers = ['--servers', cluster.urls.join(',')];
  plugin = await Plugin.start(folder, ['--mode', 'controller', ...servers, '--timeout', '2s']);
  assert.deepEqual(await plugin.call('Probe'), { ready: { value: false } });
  assert.equal(await plugin.codeOf('CreateVolume', wanted('outage')), 'UNAVAILABLE');
  assert.equal(await plugin.codeOf('DeleteVolume', { volumeId: 'lasting' }), 'UNAVAILABLE');
  await Promise.all(cluster.ids.map((id) => cluster.restart(id)));
  await until('it is made', async () => (await plugin.codeOf('CreateVolume', wanted('outage'))) === 'OK');
  assert.deepEqual(await plugin.call('Probe'), { ready: { value: true } });
  for (const volumeId of ['outage', 'lasting'])
    await until('it is deleted', async () => (await plugin.codeOf('DeleteVolume', { volumeId })) === 'OK');
});
