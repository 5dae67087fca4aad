import assert from 'node:assert/strict';
import { test } from 'node:test';
import Database from 'better-sqlite3';
import fc from 'fast-check';
import { ACCESS_ACL, DEFAULT_ACL, encodeAcl } from '../../catalog/acl.ts';
import { decodeBatch, encodeBatch, executeBatch, executeRequests } from '../../catalog/batch.ts';
import { dumpCatalog } from '../../catalog/dump.ts';
import { runQuery } from '../../catalog/queries.ts';
import { Recount } from '../../catalog/recount.ts';
import { type CatalogDatabase, ensureSchema } from '../../catalog/schema.ts';
import type { Command, CommandRequest, Place } from '../../wire/catalog-api.ts';
import { isLong } from '../long.ts';
import { SERVERS } from './fixture.ts';
import { assertSound } from './soundness.ts';

const NAMES = ['a', 'b', 'c'];
const RUNS = isLong ? 150 : 30;

const name = fc.constantFrom(...NAMES);
const names = fc.array(name, { minLength: 1, maxLength: 3 });
const path = names.map((each) => `/${each.join('/')}`);
const place: fc.Arbitrary<Place> = fc.oneof(
  { weight: 6, arbitrary: path.map((each): Place => ({ volume: 'main', path: each })) },
  { weight: 1, arbitrary: fc.record({ parent: fc.integer({ min: 1, max: 12 }), name }) },
  { weight: 1, arbitrary: fc.constant<Place>({ volume: 'second', path: '/a' }) },
);
const inode = fc.integer({ min: 1, max: 15 });
const mode = fc.constantFrom(0o644, 0o755, 0o2775, 0o6755);
const owner = { uid: fc.constant(1), gid: fc.constantFrom(1, 2) };
const mark = fc.record({ epoch: fc.nat({ max: 3 }), turn: fc.nat({ max: 3 }) });
const contents = fc.record({ epoch: fc.integer({ min: 0, max: 2 }), seq: fc.integer({ min: 0, max: 4 }) });
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

const at = (path: string) => ({ volume: 'main', path });
const created = (path: string): Command => ({
  kind: 'create-file',
  place: at(path),
  mode: 0o644,
  uid: 1,
  gid: 1,
  exclusive: true,
});
const renamed = (mode: 'replace' | 'no-replace' | 'exchange', from: string, to: string): Command => ({
  kind: 'rename',
  from: at(from),
  to: at(to),
  mode,
});
const treeCommand: fc.Arbitrary<Command> = fc.oneof(
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
  fc.constant<Command>({ kind: 'sweep', countMax: 2 }),
  fc.record({ kind: fc.constant('volume-remove' as const), name: fc.constantFrom('second', 'main') }),
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
    kind: fc.constant('set-replicas' as const),
    inode,
    count: fc.option(fc.integer({ min: 1, max: 5 })),
  }),
);

/** Requests of few sessions with repeating numbers: many are retries. */
const requests = fc.array(
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

function openCatalog(): CatalogDatabase {
  const db = new Database(':memory:');
  ensureSchema(db);
  return db;
}

const VOLUME: CommandRequest = {
  session: 99,
  number: 1,
  command: { kind: 'volume-create', name: 'main', replicas: 3, objectBytes: 4096, trashMs: 1 },
};

/** As the primary does it; what the world adds depends on nothing that replicas share. */
function runPrimary(db: CatalogDatabase, seq: number, batch: readonly CommandRequest[]) {
  db.exec('BEGIN');
  const nowNs = 1_000_000_000_000n + BigInt(seq);
  const placement = (count: number) =>
    Array.from({ length: count }, (_, index) => SERVERS[(seq + index) % 5] ?? 's1');
  const done = executeRequests(db, seq, batch, {
    nowNs,
    placement: (count) => placement(count) as typeof SERVERS,
  });
  db.exec('COMMIT');
  return done;
}

/** A recount during which the catalog has changed finds all counters right. */
function assertNothingWrong(recount: Recount): void {
  while (!recount.step(3));
  assert.deepEqual(recount.wrongCounters(), []);
}

test('equal batches make equal and sound catalogs', () => {
  let executed = 0;
  let refused = 0;
  fc.assert(
    fc.property(fc.array(requests, { minLength: 1, maxLength: 30 }), (batches) => {
      const [primary, backup] = [openCatalog(), openCatalog()];
      const recount = new Recount(primary);
      for (const [index, batch] of [[VOLUME], ...batches].entries()) {
        const { batch: resolved, outcomes } = runPrimary(primary, index + 1, batch);
        for (const outcome of outcomes) outcome.kind === 'done' ? executed++ : refused++;
        backup.exec('BEGIN');
        const theirs = executeBatch(backup, index + 1, decodeBatch(encodeBatch(resolved)));
        backup.exec('COMMIT');
        assert.equal(theirs.length, resolved.commands.length);
        // The second time, all requests are remembered: none is executed, the answers are equal.
        const before = [...dumpCatalog(primary)];
        const again = runPrimary(primary, index + 1, batch);
        assert.deepEqual(again.batch.commands, []);
        assert.deepEqual(again.outcomes, outcomes);
        assert.deepEqual([...dumpCatalog(primary)], before);
        recount.step(1);
      }
      assert.deepEqual([...dumpCatalog(backup)], [...dumpCatalog(primary)]);
      assertSound(primary);
      assertNothingWrong(recount);
    }),
    { numRuns: RUNS },
  );
  assert(
    executed > 2 * RUNS && refused > 2 * RUNS,
    `Some commands executed and some refused: ${executed}, ${refused}`,
  );
});

/** Commands about few files, so that files in the trash are restored, and removed again. */
const shallow = fc.oneof(
  { weight: 4, arbitrary: name.map((each) => `/${each}`) },
  { weight: 1, arbitrary: fc.constant('/d/a') },
);
const fileNumber = fc.integer({ min: 2, max: 5 });
const throwingCommand: fc.Arbitrary<Command> = fc.oneof(
  { weight: 4, arbitrary: shallow.map(created) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('make-directory' as const),
      place: fc.constant(at('/d')),
      mode,
      ...owner,
    }),
  },
  {
    weight: 3,
    arbitrary: fc
      .record({ inode: fileNumber, sizeBytes: fc.nat({ max: 3000 }), seq: fc.nat({ max: 9 }) })
      .map(({ inode: id, sizeBytes, seq }): Command => {
        const file = { inode: id, sizeBytes, modifiedNs: '7', contents: { epoch: 1, seq } };
        return { kind: 'settle', files: [file] };
      }),
  },
  {
    weight: 3,
    arbitrary: fc
      .record({ inode: fileNumber, growTo: fc.nat({ max: 5000 }) })
      .map((growth): Command => ({ kind: 'open-for-write', ...growth })),
  },
  { weight: 6, arbitrary: shallow.map((each): Command => ({ kind: 'unlink', place: at(each), by: 'anna' })) },
  { weight: 2, arbitrary: fc.tuple(shallow, shallow).map(([from, to]) => renamed('replace', from, to)) },
  {
    weight: 12,
    arbitrary: fc.record(
      {
        kind: fc.constant('trash-restore' as const),
        volume: fc.constant('main'),
        inode: fileNumber,
        to: shallow,
      },
      { requiredKeys: ['kind', 'volume', 'inode'] },
    ),
  },
  { weight: 3, arbitrary: fc.constant<Command>({ kind: 'trash-empty', volume: 'main', countMax: 1 }) },
  { weight: 1, arbitrary: fc.constant<Command>({ kind: 'volume-set', name: 'main', quotaBytes: 20_000 }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constantFrom('snapshot-create' as const, 'snapshot-remove' as const),
      volume: fc.constant('main'),
      name: fc.constant('kept'),
    }),
  },
  { weight: 1, arbitrary: fc.constant<Command>({ kind: 'sweep', countMax: 2 }) },
  {
    weight: 2,
    arbitrary: fileNumber.map(
      (inode): Command => ({ kind: 'open-for-write', inode, preserves: true, preserved: 'lost' }),
    ),
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom<Command>(
      { kind: 'collect', beforeNs: '0', countMax: 2 },
      { kind: 'collect', beforeNs: '9000000000000000000', countMax: 2 },
    ),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('keep-orphan' as const), inode: fileNumber }) },
);

test('whatever is moved to the trash and restored, trash and counters stay sound', () => {
  let restored = 0;
  let emptied = 0;
  fc.assert(
    fc.property(fc.array(throwingCommand, { minLength: 30, maxLength: 60 }), (commands) => {
      const db = openCatalog();
      runPrimary(db, 1, [VOLUME]);
      const recount = new Recount(db);
      for (const [index, command] of commands.entries()) {
        if (index % 3 === 0) recount.step(1);
        const [outcome] = runPrimary(db, index + 2, [{ session: 5, number: index + 1, command }]).outcomes;
        if (outcome?.kind !== 'done') continue;
        if (command.kind === 'trash-restore') restored++;
        if ('removed' in outcome.result && outcome.result.removed > 0) emptied++;
      }
      assertSound(db);
      assertNothingWrong(recount);
    }),
    { numRuns: RUNS },
  );
  // On average half of the runs have each kind; 30 runs without one do not occur in practice.
  assert.ok(restored > 0 && emptied > 0, `Both kinds occurred: ${restored}, ${emptied}`);
});

// A model of directories ------------------------------------------------------------------------

interface ModelNode {
  readonly id: number;
  readonly children: Map<string, ModelNode> | null;
}

class ModelError extends Error {}

/** Directories, files and names in plain maps. */
class Model {
  readonly root: ModelNode = { id: 1, children: new Map() };
  readonly files = new Map<number, ModelNode>();
  #nextId = 2;

  run(command: Command): void {
    switch (command.kind) {
      case 'make-directory': {
        const [children, last] = this.#spot(command.place);
        if (children.has(last)) throw new ModelError();
        children.set(last, { id: this.#nextId++, children: new Map() });
        return;
      }
      case 'create-file': {
        const [children, last] = this.#spot(command.place);
        const there = children.get(last);
        if (there !== undefined && (command.exclusive || there.children !== null)) throw new ModelError();
        if (there !== undefined) return;
        const file = { id: this.#nextId++, children: null };
        this.files.set(file.id, file);
        children.set(last, file);
        return;
      }
      case 'remove-directory': {
        const [children, last] = this.#spot(command.place);
        if (children.get(last)?.children?.size !== 0) throw new ModelError();
        children.delete(last);
        return;
      }
      case 'unlink': {
        const [children, last] = this.#spot(command.place);
        if (children.get(last)?.children !== null) throw new ModelError();
        children.delete(last);
        return;
      }
      case 'link': {
        const file = this.files.get(command.inode);
        const [children, last] = this.#spot(command.place);
        if (file === undefined || this.#names(this.root, file) === 0 || children.has(last))
          throw new ModelError();
        children.set(last, file);
        return;
      }
      case 'rename':
        this.#rename(command);
        return;
      default:
        assert.fail('Not modelled');
    }
  }

  #rename(command: Extract<Command, { kind: 'rename' }>): void {
    const [fromChildren, fromName] = this.#spot(command.from);
    const [toChildren, toName] = this.#spot(command.to);
    const moved = fromChildren.get(fromName);
    const target = toChildren.get(toName);
    if (moved === undefined) throw new ModelError();
    if (command.mode === 'no-replace' && target !== undefined) throw new ModelError();
    if (command.mode === 'exchange' && target === undefined) throw new ModelError();
    if (moved === target) return;
    if (this.#holds(moved, toChildren)) throw new ModelError();
    if (command.mode === 'exchange' && target !== undefined) {
      if (this.#holds(target, fromChildren)) throw new ModelError();
      fromChildren.set(fromName, target);
    } else {
      if (target !== undefined && (moved.children === null) !== (target.children === null))
        throw new ModelError();
      if (target?.children != null && target.children.size > 0) throw new ModelError();
      fromChildren.delete(fromName);
    }
    toChildren.set(toName, moved);
  }

  #spot(place: Place): [Map<string, ModelNode>, string] {
    if (!('path' in place) || place.volume !== 'main') throw new ModelError();
    const parts = place.path.split('/').slice(1);
    const last = parts.pop() as string;
    let here = this.root;
    for (const part of parts) {
      const next = here.children?.get(part);
      if (next === undefined) throw new ModelError();
      here = next;
    }
    if (here.children === null) throw new ModelError();
    return [here.children, last];
  }

  #holds(node: ModelNode, children: Map<string, ModelNode>): boolean {
    if (node.children === null) return false;
    return (
      node.children === children || [...node.children.values()].some((child) => this.#holds(child, children))
    );
  }

  #names(node: ModelNode, file: ModelNode): number {
    if (node.children === null) return 0;
    let count = 0;
    for (const child of node.children.values()) count += child === file ? 1 : this.#names(child, file);
    return count;
  }

  /** Lines `path id kind`, in the order of a depth-first walk. */
  *tree(node = this.root, at = ''): Generator<string> {
    for (const [key, child] of [...(node.children ?? [])].sort(([a], [b]) => (a < b ? -1 : 1))) {
      yield `${at}/${key} ${child.id} ${child.children === null ? 'file' : 'directory'}`;
      yield* this.tree(child, `${at}/${key}`);
    }
  }
}

function* tree(db: CatalogDatabase, inode: number, at = ''): Generator<string> {
  for (const entry of runQuery(db, { kind: 'list', inode, after: '', countMax: 100 }).entries) {
    const { attributes } = entry;
    yield `${at}/${entry.name} ${attributes.inode} ${attributes.kind}`;
    if (attributes.kind === 'directory') yield* tree(db, attributes.inode, `${at}/${entry.name}`);
  }
}

/** Renames of each kind, and a link, that succeed: random names rarely fit together. */
const FITTING: Command[] = [
  created('/a'),
  renamed('no-replace', '/a', '/b'),
  created('/a'),
  renamed('exchange', '/a', '/b'),
  renamed('replace', '/a', '/b'),
  { kind: 'link', inode: 2, place: at('/c') },
];

test('directories behave as a model of plain maps does', () => {
  const modelled = treeCommand.filter(
    (command) =>
      !('place' in command && 'parent' in command.place) &&
      !(command.kind === 'rename' && ('parent' in command.from || 'parent' in command.to)),
  );
  const done = new Set<string>();
  fc.assert(
    fc.property(fc.array(modelled, { minLength: 20, maxLength: 60 }), (commands) => {
      const db = openCatalog();
      const model = new Model();
      runPrimary(db, 1, [VOLUME]);
      for (const [index, command] of commands.entries()) {
        const { outcomes } = runPrimary(db, index + 2, [{ session: 5, number: index + 1, command }]);
        let expected = 'done';
        try {
          model.run(command);
          done.add(command.kind === 'rename' ? `rename-${command.mode}` : command.kind);
        } catch (error) {
          if (!(error instanceof ModelError)) throw error;
          expected = 'refused';
        }
        assert.equal(outcomes[0]?.kind, expected, JSON.stringify(command));
      }
      assert.deepEqual([...tree(db, 1)], [...model.tree()]);
      assertSound(db);
    }),
    { numRuns: RUNS, examples: [[FITTING]] },
  );
  assert.equal(done.size, 8, `Every modelled operation occurred: ${[...done].join(' ')}`);
});
