import assert from 'node:assert/strict';
import { test } from 'node:test';
import Database from 'better-sqlite3';
import fc from 'fast-check';
import { decodeBatch, encodeBatch, executeBatch, executeRequests } from '../../catalog/batch.ts';
import { dumpCatalog } from '../../catalog/dump.ts';
import { runQuery } from '../../catalog/queries.ts';
import { Recount } from '../../catalog/recount.ts';
import { type CatalogDatabase, ensureSchema } from '../../catalog/schema.ts';
import type { Command, CommandRequest, Place } from '../../wire/catalog-api.ts';
import { isLong } from '../long.ts';
import { everyStep } from './every-step.ts';
import { SERVERS } from './fixture.ts';
import { at, created, mode, name, owner, renamed, requests, treeCommand } from './random-commands.ts';
import { assertSound } from './soundness.ts';

const RUNS = isLong ? 150 : 30;

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
  // Nor is a batch without commands replicated: the version that its requests need is not stored.
  db.exec(done.batch.commands.length === 0 ? 'ROLLBACK' : 'COMMIT');
  return done;
}

/** A recount during which the catalog has changed finds all counters right. */
function assertNothingWrong(recount: Recount): void {
  everyStep(() => !recount.step(3));
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
