/** Goal: names, parameters, sizes and calls of the CSI driver keep its rules, without a cluster. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CallFailure, statusOf } from '../../client/csi/call-failure.ts';
import { useOf } from '../../client/csi/capabilities.ts';
import type { VolumeCapability } from '../../client/csi/messages.ts';
import { checkName, clusterName, parseSnapshotId } from '../../client/csi/names.ts';
import { Operations } from '../../client/csi/operations.ts';
import { capacityFits, capacityOf, inlineCapacityOf, settingsOf } from '../../client/csi/parameters.ts';
import { socketPath } from '../../client/csi/socket-file.ts';
import { bytesFor } from '../../client/csi/topology.ts';
import { mountedTree } from '../../client/csi/volume-context.ts';
import { isVolumeName } from '../../wire/access.ts';

function refused(work: () => unknown, code: string, reason: RegExp): void {
  assert.throws(work, (error) => {
    assert.ok(error instanceof CallFailure);
    assert.equal(error.code, code);
    assert.match(error.message, reason);
    return true;
  });
}

test('different names have different names in the cluster', () => {
  const digest = clusterName('a b');
  assert.match(digest, /^csi-[0-9a-f]{40}$/);
  assert.equal(clusterName('pvc-1'), 'pvc-1');
  assert.notEqual(clusterName(digest), digest, 'A name that looks like a digest gets one');
  for (const name of ['A', '', '.', '../x', 'a@b', 'a/b', 'x'.repeat(64), '-', '\u{1f600}'])
    assert.ok(isVolumeName(clusterName(name)), name);
  assert.deepEqual(parseSnapshotId('a@b'), { volume: 'a', name: 'b' });
  for (const id of ['', 'a', '@', 'a@', '@b', 'a@b@c', 'a/@b', 'A@b'])
    assert.equal(parseSnapshotId(id), null, id);
  for (const name of ['', 'x'.repeat(129), 'é'.repeat(65), 'a\u0000', 'a\u0085'])
    refused(() => checkName(name, 'name'), 'INVALID_ARGUMENT', /name/);
  checkName('tabs\tand\nlines', 'name');
});

test('a call for a volume that has one in progress is refused; others, and later ones, are not', async () => {
  const operations = new Operations();
  let finish = (): void => undefined;
  const first = operations.run(
    ['a'],
    () =>
      new Promise<void>((resolve) => {
        finish = resolve;
      }),
  );
  await assert.rejects(
    operations.run(['b', 'a'], async () => undefined),
    (error) => error instanceof CallFailure && error.code === 'ABORTED',
  );
  assert.equal(await operations.run(['b'], async () => 1), 1, 'The refused call has kept no key');
  finish();
  await first;
  await assert.rejects(
    operations.run(['a'], () => Promise.reject(new Error('x'))),
    /x/,
  );
  assert.equal(await operations.run(['a'], async () => 2), 2);
});

test('a call waits for a repair of its volume; a repair leaves a volume to its call', async () => {
  const operations = new Operations();
  const order: string[] = [];
  const { promise: replaced, resolve: replace } = Promise.withResolvers<void>();
  const repair = operations.repair('a', async () => {
    await replaced;
    order.push('repaired');
  });
  const call = operations.run(['a'], async () => void order.push('called'));
  await assert.rejects(
    operations.run(['a'], async () => undefined),
    /in progress/,
  );
  await operations.repair('a', async () => void order.push('another repair'));
  replace();
  await Promise.all([repair, call]);
  assert.deepEqual(order, ['repaired', 'called']);
  const failed = operations.repair('a', () => Promise.reject(new Error('no majority')));
  assert.equal(await operations.run(['a'], async () => 1), 1, 'The call looks itself');
  await assert.rejects(failed, /no majority/);
});

test('flags of mounts name no servers, credentials or rights, however they are written', () => {
  const capability = (...mountFlags: string[]): VolumeCapability => ({
    mount: { fsType: '', mountFlags },
    accessMode: { mode: 'SINGLE_NODE_WRITER' },
  });
  const flags = [
    'servers=a',
    'ca=/x',
    'noatime,token_file=/x',
    't\\oken_file=/x',
    '"suid"',
    'nodev,dev',
    'fsname=a',
  ];
  for (const flag of flags) refused(() => useOf(capability(flag)), 'INVALID_ARGUMENT', /Cannot use/);
  refused(() => useOf(capability('x'.repeat(5_000))), 'INVALID_ARGUMENT', /longer/);
  refused(() => useOf(null), 'INVALID_ARGUMENT', /no volume capability/);
  assert.deepEqual(useOf(capability('noatime', 'cache=ttl:1s')).flags, ['noatime', 'cache=ttl:1s']);
  assert.equal(useOf({ ...capability(), accessMode: { mode: 'MULTI_NODE_READER_ONLY' } }).readOnly, true);
});

test('parameters, places and sizes are checked', () => {
  const settings = settingsOf({ labels: 'ssd,fast', mode: '2770', 'csi.storage.k8s.io/pv/name': 'x' });
  assert.deepEqual(settings.labels, ['fast', 'ssd']);
  assert.equal(settings.mode, 0o2770);
  const wrong = {
    objectSize: '1',
    policy: 'none',
    trash: '-1',
    zones: '/',
    uid: '-1',
    mode: '8',
    ownCatalog: '',
  };
  for (const [name, text] of Object.entries(wrong))
    refused(() => settingsOf({ [name]: text }), 'INVALID_ARGUMENT', new RegExp(name));
  refused(() => settingsOf({ __proto__x: '1' }), 'INVALID_ARGUMENT', /no parameter/);

  assert.deepEqual(mountedTree('id', { volume: 'main@daily', subdir: 'a//b/' }), {
    tree: 'main@daily',
    path: '/a/b',
  });
  refused(() => mountedTree('id', { subdir: '../a' }), 'INVALID_ARGUMENT', /subdir/);
  refused(() => mountedTree('id', { volume: 'a/b' }), 'INVALID_ARGUMENT', /volume/);
  refused(() => mountedTree('id', { server: 'a' }), 'INVALID_ARGUMENT', /server/);
  refused(() => mountedTree('No Volume', {}), 'NOT_FOUND', /No Volume/);

  const range = (requiredBytes: string, limitBytes: string) => capacityOf({ requiredBytes, limitBytes });
  refused(() => range('2', '1'), 'OUT_OF_RANGE', /larger/);
  refused(() => range('9223372036854775807', '0'), 'OUT_OF_RANGE', /at most/);
  refused(() => range('-1', '0'), 'INVALID_ARGUMENT', /negative/);
  assert.ok(capacityFits(10, range('10', '10')) && capacityFits(0, range('10', '0')));
  assert.ok(!capacityFits(10, range('11', '0')) && !capacityFits(10, range('0', '9')));
  assert.ok(!capacityFits(0, range('0', '9')), 'An unlimited volume is larger than a limit');
  assert.equal(inlineCapacityOf('2Gi').requiredBytes, 2 * 1024 ** 3);
  refused(() => inlineCapacityOf('much'), 'INVALID_ARGUMENT', /size/);

  for (const endpoint of ['tcp://0.0.0.0:1', '/csi.sock', 'unix://csi.sock', `unix:///${'x'.repeat(200)}`])
    assert.equal(statusOf(thrownBy(() => socketPath(endpoint))).code, 'INVALID_ARGUMENT', endpoint);
  assert.equal(socketPath('unix:///csi/csi.sock'), '/csi/csi.sock');
});

test('the capacity is what fits with each copy on another server', () => {
  assert.equal(bytesFor([10, 10, 10], 3), 10);
  assert.equal(bytesFor([10, 10, 10], 1), 30);
  assert.equal(bytesFor([100, 10, 10], 2), 20, 'The large server has one copy of everything');
  assert.equal(bytesFor([100, 100, 4], 3), 4);
  assert.equal(bytesFor([5, 4], 2), 4);
  // The definition, tried out: the copies of every byte are on different servers.
  for (const free of [[7, 3, 2], [9, 9, 1, 1], [4], [6, 5, 4, 3, 2]]) {
    for (let replicas = 1; replicas <= free.length; replicas++) {
      const fits = (bytes: number): boolean =>
        free.reduce((sum, one) => sum + Math.min(one, bytes), 0) >= replicas * bytes;
      const bytes = bytesFor(free, replicas);
      assert.ok(fits(bytes) && !fits(bytes + 1), `${free} with ${replicas} replicas: ${bytes}`);
    }
  }
});

function thrownBy(work: () => unknown): unknown {
  try {
    work();
    return null;
  } catch (error) {
    return error;
  }
}
