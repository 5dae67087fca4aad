/**
 * A catalog with clones, and a reference without any: in it, each clone is a volume to which a snapshot was copied by
 * ordinary commands.
 */
import assert from 'node:assert/strict';
import Database from 'better-sqlite3';
import { ServiceError } from '../../base/errors.ts';
import { decodeBatch, encodeBatch, executeBatch, executeRequests } from '../../catalog/batch.ts';
import { UnfilledDirectory } from '../../catalog/clone-tables.ts';
import { dumpCatalog } from '../../catalog/dump.ts';
import { type QueryOf, runQuery } from '../../catalog/queries.ts';
import { type CatalogDatabase, ensureSchema } from '../../catalog/schema.ts';
import { outcomeResult } from '../../catalog/sessions.ts';
import type {
  Attributes,
  Command,
  CommandRequest,
  CommandResults,
  Query,
  QueryResults,
} from '../../wire/catalog-api.ts';
import { SERVERS } from './fixture.ts';

/** Volumes that need the snapshot that they are clones of. */
export function clonesIn({ volumes }: QueryResults['volumes']) {
  return volumes.flatMap(({ name, clone }) => (clone === undefined ? [] : [{ volume: name, ...clone }]));
}

/** Two replicas that execute the same batches; directories are filled in slices. */
export class FilledCatalog {
  readonly db = new Database(':memory:');
  readonly other = new Database(':memory:');
  /** Entries per command; a function, so that slices differ. */
  sliceMax: () => number = () => 2;
  fills = 0;
  timeNs = 1_700_000_000_000_000_000n;
  #seq = 0;
  #fillNumber = 0;

  constructor() {
    ensureSchema(this.db);
    ensureSchema(this.other);
  }

  run<Kind extends Command['kind']>(
    command: Extract<Command, { kind: Kind }> & { kind: Kind },
  ): CommandResults[Kind] {
    const number = this.#seq + 1;
    this.timeNs += 1n;
    for (;;) {
      const { outcome, directory } = this.attempt(command, { session: 1, number });
      if (directory === null) return outcomeResult(outcome) as CommandResults[Kind];
      this.fill(directory);
    }
  }

  /** @returns the directory that has to be filled before; null if the command has been executed */
  attempt(command: Command, id: { readonly session: number; readonly number: number }) {
    const { outcomes, batch, unfilled, touched } = this.batch([{ ...id, command }]);
    const [outcome] = outcomes;
    assert.ok(outcome !== undefined);
    const directory = unfilled.get(0) ?? null;
    if (directory !== null) assert.equal(batch.commands.length, 0, 'It is no part of the batch');
    return { outcome, directory, touched: touched[0] ?? [] };
  }

  batch(requests: readonly CommandRequest[]): ReturnType<typeof executeRequests> {
    this.#seq++;
    this.db.exec('BEGIN');
    const done = executeRequests(this.db, this.#seq, requests, {
      nowNs: this.timeNs,
      placement: (count) => SERVERS.slice(0, count),
    });
    this.db.exec(done.batch.commands.length === 0 ? 'ROLLBACK' : 'COMMIT');
    this.other.exec('BEGIN');
    executeBatch(this.other, this.#seq, decodeBatch(encodeBatch(done.batch)));
    this.other.exec('COMMIT');
    return done;
  }

  fill(directory: number): void {
    for (let done = false; !done; ) {
      done = this.fillNext(directory);
    }
  }

  /** Copies some entries. @returns whether the directory is filled */
  fillNext(inode: number): boolean {
    this.fills++;
    const command = { kind: 'clone-fill', inode, countMax: this.sliceMax() } as const;
    const id = { session: 2, number: ++this.#fillNumber };
    for (;;) {
      const { outcome, directory, touched } = this.attempt(command, id);
      assert.deepEqual(touched, [], 'No client has cached what changes');
      if (directory === null) return (outcomeResult(outcome) as CommandResults['clone-fill']).done;
      this.fill(directory);
    }
  }

  query<Kind extends Query['kind']>(query: QueryOf<Kind> & { kind: Kind }): QueryResults[Kind] {
    for (;;) {
      try {
        return runQuery<Kind>(this.db, query);
      } catch (error) {
        if (!(error instanceof UnfilledDirectory)) throw error;
        this.fill(error.inode);
      }
    }
  }

  assertReplicasEqual(): void {
    assert.deepEqual([...dumpCatalog(this.db)], [...dumpCatalog(this.other)]);
  }

  at(volume: string, path: string): Attributes {
    return this.query({ kind: 'resolve', volume, path, follow: false }).attributes;
  }

  entries(inode: number, snapshot?: number): QueryResults['list']['entries'] {
    const entries = [];
    for (let after = ''; ; ) {
      const shown = snapshot === undefined ? {} : { snapshot };
      const page = this.query({ kind: 'list', inode, after, countMax: 3, ...shown });
      entries.push(...page.entries);
      if (!page.more) return entries;
      after = page.entries.at(-1)?.name ?? '';
    }
  }

  xattrs(inode: number, snapshot?: number): (readonly [string, string])[] {
    const shown = snapshot === undefined ? {} : { snapshot };
    const { names } = this.query({ kind: 'xattrs', inode, ...shown });
    return names.map((name) => [name, this.query({ kind: 'xattr', inode, name, ...shown }).value] as const);
  }
}

/** What is on the disks: for each file, a name of its contents, by version. */
export class Disks {
  readonly #contents = new Map<number, { readonly version: string; readonly text: string }>();

  put(inode: number, { epoch, seq }: { readonly epoch: number; readonly seq: number }, text: string): void {
    this.#contents.set(inode, { version: `${epoch}.${seq}`, text });
  }

  /** Reads as a server does: contents of another version are refused. */
  read(inode: number, { epoch, seq }: { readonly epoch: number; readonly seq: number }): string {
    const there = this.#contents.get(inode) ?? { version: '0.0', text: '' };
    assert.equal(there.version, `${epoch}.${seq}`, `File ${inode} has the version that a reader expects`);
    return there.text;
  }

  copy(from: number, to: number): void {
    const there = this.#contents.get(from);
    if (there !== undefined) this.#contents.set(to, there);
  }
}

export function readFile(catalog: FilledCatalog, disks: Disks, file: Attributes): string {
  if (file.shared !== true) return disks.read(file.source ?? file.inode, file.contents);
  const { source, contents } = catalog.query({ kind: 'shared-contents', inode: file.inode });
  return disks.read(source, contents);
}

/** One inode in a tree; names of the same inode have the same one. */
export interface Node {
  readonly attributes: Attributes;
  readonly xattrs: readonly (readonly [string, string])[];
  readonly text: string;
  readonly children: ReadonlyMap<string, Node>;
}

/** All that a walk of a volume or snapshot finds. */
export function treeOf(catalog: FilledCatalog, disks: Disks, name: string): Node {
  const known = new Map<number, Node>();
  const visit = (attributes: Attributes): Node => {
    const { inode, snapshot, kind } = attributes;
    const before = known.get(inode);
    if (before !== undefined) {
      assert.deepEqual(attributes, before.attributes);
      return before;
    }
    const entries = kind === 'directory' ? catalog.entries(inode, snapshot) : [];
    const node = {
      attributes,
      xattrs: catalog.xattrs(inode, snapshot),
      text: kind === 'file' ? readFile(catalog, disks, attributes) : '',
      children: new Map(entries.map((entry) => [entry.name, visit(entry.attributes)])),
    };
    known.set(inode, node);
    return node;
  };
  return visit(catalog.at(name, '/'));
}

/**
 * A tree as lines, without what differs between a copy and its original: numbers, and where contents are.
 * @param sinceNs times of change and creation before it are not compared: commands cannot set them
 */
export function linesOf(root: Node, sinceNs: bigint): string[] {
  const numbers = new Map<Node, number>();
  const lines: string[] = [];
  const timeOf = (ns: string | undefined) => (ns !== undefined && BigInt(ns) >= sinceNs ? ns : 'before');
  const visit = (path: string, node: Node): void => {
    const seen = numbers.get(node);
    numbers.set(node, seen ?? numbers.size);
    const { kind, mode, uid, gid, links, sizeBytes, holeBytes, accessedNs, modifiedNs, target, device } =
      node.attributes;
    const same = { kind, mode, uid, gid, links, sizeBytes, holeBytes, modifiedNs, target, device };
    const times = [accessedNs, timeOf(node.attributes.changedNs), timeOf(node.attributes.createdNs)];
    lines.push(JSON.stringify([path, numbers.get(node), same, times, node.xattrs, node.text]));
    if (seen === undefined) for (const [name, child] of node.children) visit(`${path}/${name}`, child);
  };
  visit('', root);
  return lines;
}

/** Copies a tree to a new volume by commands that have nothing to do with clones. */
export function copyTree(
  tree: Node,
  from: QueryResults['volume']['volume'],
  to: { readonly catalog: FilledCatalog; readonly disks: Disks; readonly name: string },
): void {
  const { catalog, disks, name: volume } = to;
  const { replicas, objectBytes } = from;
  const { volume: made } = catalog.run({ kind: 'volume-create', name: volume, replicas, objectBytes });
  const copies = new Map<Node, number>();
  const finish = (node: Node, inode: number): void => {
    const { mode, uid, gid, accessedNs, modifiedNs, kind, sizeBytes, holeBytes } = node.attributes;
    for (const [name, value] of node.xattrs)
      catalog.run({ kind: 'set-xattr', inode, name, value, mode: 'set' });
    if (kind === 'file') {
      const contents = { epoch: 1, seq: 1 };
      disks.put(inode, contents, node.text);
      const holes = holeBytes === undefined ? {} : { holeBytes };
      catalog.run({ kind: 'settle', files: [{ inode, sizeBytes, modifiedNs, contents, ...holes }] });
    }
    const contents = kind === 'file' ? { contents: { epoch: 1, seq: 1 } } : {};
    catalog.run({ kind: 'set-attributes', inode, mode, uid, gid, accessedNs, modifiedNs, ...contents });
  };
  const create = (parent: number, name: string, node: Node): number => {
    const place = { parent, name };
    const owner = { mode: 0o600, uid: 0, gid: 0 };
    const { kind, target, device } = node.attributes;
    switch (kind) {
      case 'directory':
        return catalog.run({ kind: 'make-directory', place, ...owner }).attributes.inode;
      case 'file':
        return catalog.run({ kind: 'create-file', place, ...owner, exclusive: true }).attributes.inode;
      case 'symlink':
        return catalog.run({ kind, place, target, uid: 0, gid: 0 }).attributes.inode;
      default:
        return catalog.run({ kind: 'make-node', place, type: kind, device, ...owner }).attributes.inode;
    }
  };
  const fill = (node: Node, inode: number): void => {
    copies.set(node, inode);
    for (const [name, child] of node.children) {
      const known = copies.get(child);
      if (known !== undefined) catalog.run({ kind: 'link', inode: known, place: { parent: inode, name } });
      else fill(child, create(inode, name, child));
    }
    finish(node, inode);
  };
  fill(tree, made.root);
  // Links change times of what they lead to.
  for (const [node, inode] of copies) finish(node, inode);
}

/** @returns the result, or the code of the refusal */
export function outcomeOf(work: () => unknown): string {
  try {
    work();
    return 'done';
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    return error.code;
  }
}

export function countRows(db: CatalogDatabase, table: string): number {
  return (db.prepare(`SELECT COUNT(*) AS n FROM ${table}`).get() as { n: number }).n;
}
