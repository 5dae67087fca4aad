import fc from 'fast-check';
import { ACCESS_ACL, DEFAULT_ACL, encodeAcl } from '../../catalog/acl.ts';
import type { Command, Place } from '../../wire/catalog-api.ts';
import type { Retention } from '../../wire/retention.ts';
import type { CatalogReport } from '../../wire/volume-catalogs.ts';
import { SERVERS } from './fixture.ts';

const NAMES = ['a', 'b', 'c'];

export const name = fc.constantFrom(...NAMES);
const names = fc.array(name, { minLength: 1, maxLength: 3 });
const path = names.map((each) => `/${each.join('/')}`);
const place: fc.Arbitrary<Place> = fc.oneof(
  { weight: 6, arbitrary: path.map((each): Place => ({ volume: 'main', path: each })) },
  { weight: 1, arbitrary: fc.record({ parent: fc.integer({ min: 1, max: 12 }), name }) },
  { weight: 1, arbitrary: fc.constant<Place>({ volume: 'second', path: '/a' }) },
  { weight: 1, arbitrary: path.map((each): Place => ({ volume: 'clone', path: each })) },
);
const inode = fc.integer({ min: 1, max: 15 });
export const mode = fc.constantFrom(0o644, 0o755, 0o2775, 0o6755);
export const owner = { uid: fc.constant(1), gid: fc.constantFrom(1, 2) };
const mark = fc.record({ epoch: fc.nat({ max: 3 }), turn: fc.nat({ max: 3 }) });
const contents = fc.record({
  epoch: fc.integer({ min: 0, max: 2 }),
  seq: fc.integer({ min: 0, max: 4 }),
});
const timeNs = fc.bigInt(-(1n << 63n), (1n << 63n) - 1n).map(String);

const permissions = fc.nat({ max: 7 });
const namedEntries = fc.uniqueArray(fc.record({ permissions, id: fc.nat({ max: 3 }) }), {
  selector: ({ id }) => id,
  maxLength: 2,
});
/** A valid access control list, in its form on the wire. */
const aclValue = fc
  .record({
    own: permissions,
    users: namedEntries,
    group: permissions,
    mask: permissions,
    other: permissions,
  })
  .map(({ own, users, group, mask, other }) => {
    const unnamed = (tag: number, permissions: number) => ({ tag, permissions, id: 0xffff_ffff });
    const acl = [
      unnamed(1, own),
      ...users.map((user) => ({ tag: 2, ...user })),
      unnamed(4, group),
      ...(users.length > 0 ? [unnamed(16, mask)] : []),
      unnamed(32, other),
    ];
    return Buffer.from(encodeAcl(acl)).toString('base64');
  });

export const at = (path: string) => ({ volume: 'main', path });
export const created = (path: string): Command => ({
  kind: 'create-file',
  place: at(path),
  mode: 0o644,
  uid: 1,
  gid: 1,
  exclusive: true,
});
export const renamed = (mode: 'replace' | 'no-replace' | 'exchange', from: string, to: string): Command => ({
  kind: 'rename',
  from: at(from),
  to: at(to),
  mode,
});
export const treeCommand: fc.Arbitrary<Command> = fc.oneof(
  fc.record({ kind: fc.constant('make-directory' as const), place, mode, ...owner, umask: mode }),
  fc.record({
    kind: fc.constant('create-file' as const),
    place,
    mode,
    ...owner,
    exclusive: fc.boolean(),
  }),
  fc.record({ kind: fc.constant('remove-directory' as const), place }),
  fc.record(
    { kind: fc.constant('unlink' as const), place, by: name, trash: fc.boolean() },
    { requiredKeys: ['kind', 'place'] },
  ),
  fc.record({
    kind: fc.constant('rename' as const),
    from: place,
    to: place,
    mode: fc.constantFrom('replace' as const, 'no-replace' as const, 'exchange' as const),
  }),
  fc.record({ kind: fc.constant('link' as const), inode, place }),
);

const trashCommand: fc.Arbitrary<Command> = fc.oneof(
  fc.record(
    {
      kind: fc.constant('trash-restore' as const),
      volume: fc.constantFrom('main', 'second'),
      inode,
      to: path,
    },
    { requiredKeys: ['kind', 'volume', 'inode'] },
  ),
  fc.record(
    {
      kind: fc.constant('trash-empty' as const),
      volume: fc.constantFrom('main', 'second'),
      inode,
      path,
      countMax: fc.integer({ min: 1, max: 2 }),
    },
    { requiredKeys: ['kind', 'volume', 'countMax'] },
  ),
);

const retention: fc.Arbitrary<Retention> = fc.oneof(
  fc.record({ forMs: fc.constantFrom(1, 60_000, 86_400_000) }),
  fc.record({ untilNs: fc.constantFrom('7', '1000000000009', '1800000000000000000') }),
);

const otherCommand: fc.Arbitrary<Command> = fc.oneof(
  fc.record({
    kind: fc.constant('make-node' as const),
    place,
    type: fc.constantFrom('fifo' as const, 'block' as const),
    device: fc.integer({ min: 0, max: 2 ** 40 }),
    mode,
    ...owner,
  }),
  fc.record({
    kind: fc.constant('symlink' as const),
    place,
    target: fc.oneof(path, fc.constantFrom('..', '../b', 'a', '.')),
    ...owner,
  }),
  fc.record({
    kind: fc.constant('reserve-inodes' as const),
    owner: fc.constantFrom(1, 2),
    count: fc.constantFrom(1, 4),
    members: fc.constantFrom<string[][]>([['s1', 's2', 's3']], [['s3', 's1', 's2'], ['s2']]),
    volume: fc.constantFrom('main', 'second', 'none'),
  }),
  fc.record({
    kind: fc.constant('bear' as const),
    owner: fc.constantFrom(1, 2),
    replicas: fc.constant<string[]>(['s1', 's2', 's3']),
    objectBytes: fc.constantFrom(131_072, 4096),
    files: fc.array(
      fc.record({
        parent: inode,
        name: fc.constantFrom('a', 'b', 'c'),
        inode,
        mode,
        ...owner,
        sizeBytes: fc.nat({ max: 100_000 }),
        contents: fc.constant({ epoch: 1, seq: 1 }),
      }),
      { minLength: 1, maxLength: 4 },
    ),
  }),
  fc.record({
    kind: fc.constant('unlink-files' as const),
    files: fc.array(fc.record({ parent: inode, name: fc.constantFrom('a', 'b', 'c'), inode }), {
      minLength: 1,
      maxLength: 3,
    }),
  }),
  fc.record({
    kind: fc.constant('note-accesses' as const),
    volume: fc.constantFrom('main', 'second'),
    accesses: fc.array(
      fc.record({ inode, accessedNs: timeNs, seen: fc.record({ accessedNs: timeNs, changedNs: timeNs }) }),
      { minLength: 1, maxLength: 3 },
    ),
  }),
  fc.record({ kind: fc.constant('create-orphan' as const), volume: fc.constant('main'), mode, ...owner }),
  fc.record({ kind: fc.constant('keep-orphan' as const), inode }),
  fc.record({
    kind: fc.constant('replace' as const),
    place,
    inode,
    expect: fc.oneof(
      fc.record({ kind: fc.constant('anything' as const) }),
      fc.record({ kind: fc.constant('nothing' as const) }),
      fc.record({ kind: fc.constant('inode' as const), inode }),
    ),
  }),
  fc.record(
    {
      kind: fc.constant('set-attributes' as const),
      inode,
      mode,
      ...owner,
      accessedNs: timeNs,
      modifiedNs: timeNs,
      contents,
    },
    { requiredKeys: ['kind', 'inode'] },
  ),
  fc.record(
    {
      kind: fc.constant('open-for-write' as const),
      inode,
      mark,
      growTo: fc.nat({ max: 200_000 }),
      preserves: fc.constant(true as const),
      preserved: fc.oneof(
        fc.constantFrom('lost' as const, 'again' as const),
        inode.map((inode) => ({ inode, view: { number: 1, members: ['s1', 's2', 's3'] } })),
      ),
    },
    { requiredKeys: ['kind', 'inode'] },
  ),
  fc.record({
    kind: fc.constant('settle' as const),
    files: fc.array(
      fc.record(
        {
          inode,
          sizeBytes: fc.nat(2 ** 31 - 1).map((size) => size * 1000),
          modifiedNs: timeNs,
          contents,
          mark,
        },
        { requiredKeys: ['inode', 'sizeBytes', 'modifiedNs', 'contents'] },
      ),
      { maxLength: 3 },
    ),
  }),
  fc.record({
    kind: fc.constant('set-xattr' as const),
    inode,
    name: fc.constantFrom('user.a', 'user.b'),
    value: fc.uint8Array({ maxLength: 9 }).map((bytes) => Buffer.from(bytes).toString('base64')),
    mode: fc.constantFrom('set' as const, 'create' as const, 'replace' as const),
  }),
  fc.record({
    kind: fc.constant('set-xattr' as const),
    inode,
    name: fc.constantFrom(ACCESS_ACL, DEFAULT_ACL),
    value: fc.oneof(
      { weight: 8, arbitrary: aclValue },
      { weight: 1, arbitrary: fc.constantFrom('', 'AgAAAA==', 'AgAAAAEABgD/////') },
    ),
    mode: fc.constant('set' as const),
    clearsSetgid: fc.boolean(),
  }),
  fc.record({
    kind: fc.constant('remove-xattr' as const),
    inode,
    name: fc.constantFrom('user.a', 'user.b', ACCESS_ACL, DEFAULT_ACL),
  }),
  fc.record({
    kind: fc.constant('collect' as const),
    beforeNs: fc.constantFrom('0', '10', '9000000000000000000'),
    countMax: fc.integer({ min: 1, max: 3 }),
  }),
  fc.record({
    kind: fc.constantFrom('snapshot-create' as const, 'snapshot-remove' as const),
    volume: fc.constant('main'),
    name: fc.constantFrom('before', 'after'),
  }),
  fc.record({ kind: fc.constant('retain' as const), inode, retain: retention }),
  fc.record({
    kind: fc.constantFrom('snapshot-create' as const, 'snapshot-retain' as const),
    volume: fc.constant('main'),
    name: fc.constantFrom('before', 'after'),
    retain: retention,
  }),
  fc.constant<Command>({ kind: 'sweep', countMax: 2 }),
  fc.record({
    kind: fc.constant('clone-create' as const),
    name: fc.constantFrom('clone', 'second'),
    volume: fc.constantFrom('main', 'clone'),
    snapshot: fc.constantFrom('before', 'after'),
  }),
  fc.record({ kind: fc.constant('clone-fill' as const), inode, countMax: fc.integer({ min: 1, max: 2 }) }),
  fc.record({
    kind: fc.constant('volume-remove' as const),
    name: fc.constantFrom('second', 'main', 'clone'),
  }),
  fc.constant<Command>({ kind: 'volume-create', name: 'second', replicas: 2, objectBytes: 4096 }),
  fc.record(
    {
      kind: fc.constant('volume-set' as const),
      name: fc.constantFrom('main', 'second'),
      replicas: fc.integer({ min: 1, max: 5 }),
      policy: fc.constantFrom('quorum' as const, 'all' as const),
      quotaBytes: fc.constantFrom(0, 1, 100_000),
      quotaInodes: fc.constantFrom(0, 1, 4),
      trashMs: fc.constantFrom(0, 1, 3_600_000),
    },
    { requiredKeys: ['kind', 'name'] },
  ),
);

const server = fc.constantFrom(...SERVERS);
const labels = fc.array(fc.constantFrom('ssd', 'hdd'), { maxLength: 3 });
const listedName = fc.constantFrom('main', 'second', 'third');
const report: fc.Arbitrary<CatalogReport> = fc.oneof(
  fc.record({ kind: fc.constantFrom('created' as const, 'closed' as const) }),
  fc.record({
    kind: fc.constant('refused' as const),
    since: fc.integer({ min: 1, max: 9 }),
    why: fc.constant('It is not empty'),
  }),
  fc.record({
    kind: fc.constant('view' as const),
    view: fc.integer({ min: 1, max: 4 }),
    members: fc.uniqueArray(server, { minLength: 1, maxLength: 3 }),
  }),
  fc.record({ kind: fc.constant('retained' as const), untilNs: fc.constantFrom('7', '1000000000009') }),
  fc.record({ kind: fc.constant('none-left' as const), server, since: fc.integer({ min: 1, max: 9 }) }),
);
const serverCommand: fc.Arbitrary<Command> = fc.oneof(
  fc.record({
    kind: fc.constant('server-register' as const),
    id: server,
    url: server.map((id) => `http://${id}:7401`),
    storageId: fc.constantFrom('one', 'two'),
    freeBytes: fc.nat(),
    totalBytes: fc.nat(),
  }),
  fc.record({ kind: fc.constant('server-add' as const), id: server, url: fc.constant('http://s1:7401') }),
  fc.record({
    kind: fc.constant('server-state' as const),
    id: server,
    state: fc.constantFrom('in' as const, 'draining' as const),
  }),
  fc.record({ kind: fc.constant('server-zone' as const), id: server, zone: name }),
  fc.record({ kind: fc.constant('server-label' as const), id: server, labels }),
  fc.record({
    kind: fc.constant('volume-set' as const),
    name: fc.constant('main'),
    labels,
    zones: fc.array(fc.constantFrom('a', 'b'), { maxLength: 2 }),
  }),
  fc.record({
    kind: fc.constant('set-placement' as const),
    inode,
    class: fc.option(
      fc.record({
        labels,
        zones: fc.array(fc.constantFrom('a', 'b'), { maxLength: 2 }),
        replicas: fc.option(fc.integer({ min: 1, max: 5 })),
      }),
    ),
  }),
  fc.record({
    kind: fc.constant('set-quota' as const),
    inode,
    quota: fc.option(
      fc.record(
        { quotaBytes: fc.constantFrom(0, 4_000), quotaInodes: fc.constantFrom(0, 4) },
        { requiredKeys: [] },
      ),
    ),
  }),
  fc.record({
    kind: fc.constant('inherit-placement' as const),
    inode,
    after: fc.constantFrom('', 'a'),
    countMax: fc.integer({ min: 1, max: 3 }),
  }),
  fc.record({
    kind: fc.constant('server-maintenance' as const),
    id: server,
    forMs: fc.option(fc.integer({ min: 1, max: 10_000 })),
  }),
  fc.record({
    kind: fc.constant('cluster-set' as const),
    catalogReplicas: fc.option(fc.integer({ min: 3, max: 7 })),
  }),
  fc.record({ kind: fc.constant('server-remove' as const), id: server, dead: fc.boolean() }),
  fc.record({
    kind: fc.constant('follow-view' as const),
    inode,
    view: fc.record({
      number: fc.integer({ min: 1, max: 5 }),
      members: fc.uniqueArray(server, { minLength: 1, maxLength: 4 }),
    }),
  }),
  fc.record({
    kind: fc.constant('void-inodes' as const),
    owner: fc.constant(1),
    inodes: fc.array(inode, { minLength: 1, maxLength: 3 }),
  }),
  fc.record({
    kind: fc.constant('plan-members' as const),
    inode,
    view: fc.integer({ min: 1, max: 5 }),
    mark: fc.record({ epoch: fc.integer({ min: 1, max: 3 }), turn: fc.integer({ min: 1, max: 3 }) }),
    members: fc.uniqueArray(server, { maxLength: 4 }),
  }),
  fc.record({
    kind: fc.constant('follow-views' as const),
    files: fc.array(
      fc.record({
        inode,
        view: fc.record({
          number: fc.integer({ min: 1, max: 5 }),
          members: fc.uniqueArray(server, { minLength: 1, maxLength: 4 }),
        }),
      }),
      { minLength: 1, maxLength: 3 },
    ),
  }),
  fc.record({
    kind: fc.constant('plan-files' as const),
    files: fc.array(
      fc.record({
        inode,
        view: fc.integer({ min: 1, max: 5 }),
        mark: fc.record({ epoch: fc.integer({ min: 1, max: 3 }), turn: fc.integer({ min: 1, max: 3 }) }),
        members: fc.uniqueArray(server, { maxLength: 4 }),
      }),
      { minLength: 1, maxLength: 3 },
    ),
  }),
  fc.record({
    kind: fc.constant('set-voters' as const),
    view: fc.record({
      number: fc.integer({ min: 1, max: 3 }),
      members: fc.record({
        servers: fc.uniqueArray(server, { minLength: 1, maxLength: 4 }),
        perCell: fc.constant(3),
      }),
      clockMs: fc.integer({ min: 0 }),
    }),
  }),
  fc.record({
    kind: fc.constant('catalog-create' as const),
    name: listedName,
    members: fc.uniqueArray(server, { minLength: 1, maxLength: 3 }),
    replicas: fc.constant(3),
    objectBytes: fc.constant(4096),
  }),
  fc.record({ kind: fc.constant('volume-remove' as const), name: listedName }),
  fc.record({ kind: fc.constant('catalog-report' as const), number: fc.integer({ min: 1, max: 2 }), report }),
  fc.record({
    kind: fc.constant('set-replicas' as const),
    inode,
    count: fc.option(fc.integer({ min: 1, max: 5 })),
  }),
);

/** Requests about the volumes `main` and `second` of few sessions with repeating numbers: many are retries. */
export const requests = fc.array(
  fc.record({
    session: fc.integer({ min: 1, max: 2 }),
    number: fc.integer({ min: 1, max: 100 }),
    command: fc.oneof(
      { weight: 4, arbitrary: treeCommand },
      { weight: 2, arbitrary: otherCommand },
      { weight: 1, arbitrary: serverCommand },
      { weight: 1, arbitrary: trashCommand },
    ),
  }),
  { minLength: 1, maxLength: 5 },
);
