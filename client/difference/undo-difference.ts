import { ServiceError } from '../../base/errors.ts';
import type { Attributes, EntryChange } from '../../wire/catalog-api.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { BoundedTransfers } from '../transfer/bounded-transfers.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { changePages } from './change-pages.ts';
import { DifferenceApplier } from './difference-applier.ts';
import type { DifferenceStep } from './difference-records.ts';
import { fileContents } from './file-contents.ts';
import { assertUnprotected } from './protected-files.ts';
import { nodeOf, xattrsOf } from './snapshot-difference.ts';

const CHECKS_AT_ONCE = 16;

/** Snapshots of a volume by their numbers: the state to return to, and one of the volume as it is now. */
export interface UndoRange {
  readonly volume: string;
  readonly to: number;
  readonly now: number;
}

/**
 * Makes a volume as it was at a snapshot, in proportion to what has changed. Nothing may change it meanwhile.
 * @param copies advanced: removed inodes have other numbers when they are back
 * @returns the number of steps: 0 if nothing had changed
 * @throws ServiceError `protected`, before anything is changed, if a retention or a flag protects one of these changes
 */
export async function undoDifference(
  client: ClusterClient,
  range: UndoRange,
  copies: Map<number, number>,
  call: CallOptions,
): Promise<number> {
  const { volume } = range;
  const { root } = (await client.query({ kind: 'volume', name: volume }, call)).volume;
  const undo = new Undo(client, range, call);
  await undo.assertPossible();
  const applier = new DifferenceApplier(client, { volume, root }, copies, call);
  await applier.run(undo.steps(), (file) => fileContents(client, file, call));
  return applier.records;
}

/** Copies of a volume's inodes in itself: each is its own, unless it has been removed and is back. */
export class OwnCopies extends Map<number, number> {
  override get(inode: number): number {
    return super.get(inode) ?? inode;
  }
}

/** The steps from the newer snapshot to the older one. */
class Undo {
  readonly #client: ClusterClient;
  readonly #range: UndoRange;
  readonly #call: CallOptions;
  readonly #revived = new Set<number>();
  #checkedParent = 0;

  constructor(client: ClusterClient, range: UndoRange, call: CallOptions) {
    this.#client = client;
    this.#range = range;
    this.#call = call;
  }

  async assertPossible(): Promise<void> {
    const checks = new BoundedTransfers(CHECKS_AT_ONCE);
    try {
      await this.#check(null, checks);
    } finally {
      await checks.settled();
    }
    await checks.end();
  }

  /** @param directory whose new names are checked; null: all changes of the range */
  async #check(directory: number | null, checks: BoundedTransfers): Promise<void> {
    const { volume, to, now } = this.#range;
    const pages = changePages(this.#client, { volume, from: to, to: now }, directory, this.#call);
    for await (const { inodes, names } of pages) {
      for (const { after } of inodes) await checks.begin(() => this.#assertUnprotected(after.inode));
      for (const { after } of names) {
        if (after === null) continue;
        const { inode, kind } = after.attributes;
        await checks.begin(() => this.#assertUnprotected(inode));
        if (after.isNew && kind === 'directory') await this.#check(inode, checks);
      }
    }
  }

  /** A snapshot does not show retentions. */
  async #assertUnprotected(inode: number): Promise<void> {
    const attributes = await this.#at(inode, null);
    if (attributes !== null) await assertUnprotected(this.#client, attributes, this.#call);
  }

  async *steps(): AsyncGenerator<DifferenceStep, void, undefined> {
    const { volume, to, now } = this.#range;
    for await (const page of changePages(this.#client, { volume, from: to, to: now }, null, this.#call)) {
      for (const { before, contents, xattrs } of page.inodes) {
        const node = nodeOf(before, xattrs ? await xattrsOf(this.#client, before, this.#call) : null);
        yield { record: { kind: 'change', node, contents }, file: contents ? before : null };
      }
      for (const name of page.names) yield* this.#named(name);
    }
  }

  async *#named({
    parent,
    name,
    before,
    after,
  }: EntryChange): AsyncGenerator<DifferenceStep, void, undefined> {
    yield* this.#reviveParent(parent);
    if (after !== null) yield* this.#removed(parent, name, after);
    if (before === null) return;
    const { inode, kind, isRemoved } = before;
    if (isRemoved) yield* this.#revive(inode);
    yield { record: { kind: 'add', parent, name, inode, isDirectory: kind === 'directory' }, file: null };
  }

  async *#removed(
    parent: number,
    name: string,
    { attributes, isNew: isGone }: NonNullable<EntryChange['after']>,
  ): AsyncGenerator<DifferenceStep, void, undefined> {
    const { inode, kind } = attributes;
    const isDirectory = kind === 'directory';
    yield { record: { kind: 'remove', parent, name, inode, isDirectory, isGone }, file: null };
    if (!isDirectory || !isGone) return;
    const { volume, to, now } = this.#range;
    for await (const { names } of changePages(this.#client, { volume, from: to, to: now }, inode, this.#call))
      for (const one of names) if (one.after !== null) yield* this.#removed(inode, one.name, one.after);
  }

  /** Names of a removed directory are reported like others. */
  async *#reviveParent(parent: number): AsyncGenerator<DifferenceStep, void, undefined> {
    if (parent === this.#checkedParent) return;
    this.#checkedParent = parent;
    if ((await this.#at(parent, this.#range.now)) === null) yield* this.#revive(parent);
  }

  async *#revive(inode: number): AsyncGenerator<DifferenceStep, void, undefined> {
    if (this.#revived.has(inode)) return;
    this.#revived.add(inode);
    const attributes = await this.#at(inode, this.#range.to);
    if (attributes === null) throw new Error('A snapshot shows the inode of a name that it shows');
    const node = nodeOf(attributes, await xattrsOf(this.#client, attributes, this.#call));
    yield { record: { kind: 'node', node, place: null }, file: node.kind === 'file' ? attributes : null };
  }

  /** @param snapshot null: as it is now @returns null if it is not shown there */
  async #at(inode: number, snapshot: number | null): Promise<Attributes | null> {
    const scope = snapshot === null ? {} : { snapshot };
    try {
      return (await this.#client.query({ kind: 'attributes', inode, ...scope }, this.#call)).attributes;
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'not-found') return null;
      throw error;
    }
  }
}
