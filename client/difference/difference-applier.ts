/**
 * Applies the differences of snapshots to a directory of a volume that has a copy of the older one. Inodes are found by
 * their numbers: the applier knows the copy of each inode of the source. What is renamed, and a removed directory,
 * waits in a staging directory meanwhile, so that the order of the steps does not matter.
 */
import { ServiceError } from '../../base/errors.ts';
import type { Attributes, Place } from '../../wire/catalog-api.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { generalFailure } from '../terminal/failure.ts';
import { BoundedTransfers } from '../transfer/bounded-transfers.ts';
import type { CallOptions } from '../transport/exchange.ts';
import type { ContentsPiece, DifferenceRecord, DifferenceStep, Name, Node } from './difference-records.ts';
import { namedRefusal } from './protected-files.ts';
import { type Pieces, TargetFiles } from './target-files.ts';

const TRANSFERS_AT_ONCE = 16;
const STAGING_PREFIX = '.leasehold-staging-';

export interface ApplyTarget {
  readonly volume: string;
  readonly root: number;
}

type RecordOf<Kind extends DifferenceRecord['kind']> = Extract<DifferenceRecord, { kind: Kind }>;
type TimedAttributes = Parameters<TargetFiles['setAttributes']>[1];

export class DifferenceApplier {
  readonly #client: ClusterClient;
  readonly #target: ApplyTarget;
  /** The copy of each inode of the source, by number. */
  readonly #copies: Map<number, number>;
  readonly #call: CallOptions;
  readonly #files: TargetFiles;
  readonly #transfers = new BoundedTransfers(TRANSFERS_AT_ONCE);
  /** Set at the end: changes in a directory change its time. */
  readonly #directories = new Map<
    number,
    { readonly attributes: TimedAttributes; readonly isNew: boolean }
  >();
  readonly #waiting: { readonly inode: number; readonly place: Name }[] = [];
  /** Source numbers of what is in the staging directory. */
  readonly #staged = new Map<number, 'file' | 'moved-directory' | 'gone-directory'>();
  /** Changes of files in progress, by source number: they may get another number, and keep their names until then. */
  readonly #changing = new Map<number, Promise<void>>();
  #staging: number | null = null;
  readonly #stagingName: string;
  records = 0;

  /** @param copies has the source's root, and all that an earlier application has added */
  constructor(client: ClusterClient, target: ApplyTarget, copies: Map<number, number>, call: CallOptions) {
    this.#client = client;
    this.#target = target;
    this.#copies = copies;
    this.#call = call;
    this.#stagingName = `${STAGING_PREFIX}${client.world.randomBytes(6).toString('hex')}`;
    this.#files = new TargetFiles(client, target.volume, call);
  }

  /** Bytes of contents, written so far. */
  get bytes(): number {
    return this.#files.bytes;
  }

  /** Executes a step, or begins it: contents are read until `drain` resolves. @throws the failure of an earlier one */
  async apply(record: DifferenceRecord, contents: Pieces): Promise<void> {
    this.records += 1;
    switch (record.kind) {
      case 'node':
        return this.#create(record, contents);
      case 'change':
        return this.#change(record, contents);
      case 'remove':
        return this.#remove(record);
      case 'add':
        return this.#add(record);
    }
  }

  /**
   * Executes all steps and completes them. A failure is thrown once no transfer is in progress: it would change what
   * comes next.
   */
  async run(
    steps: AsyncIterable<DifferenceStep>,
    contentsOf: (file: Attributes) => Pieces,
    onStep: () => void = () => undefined,
  ): Promise<void> {
    try {
      for await (const { record, file } of steps) {
        await this.apply(record, file === null ? none() : contentsOf(file));
        onStep();
      }
      await this.finish();
    } catch (error) {
      await this.#transfers.settled();
      throw error;
    }
  }

  drain(): Promise<void> {
    return this.#transfers.end();
  }

  /** Completes all steps. */
  async finish(): Promise<void> {
    await this.drain();
    for (const { inode, place } of this.#waiting) await this.#placeDirectory(inode, place);
    await this.#removeStaging();
    for (const [inode, { attributes, isNew }] of this.#directories)
      await this.#transfers.begin(() => this.#files.setAttributes(inode, attributes, isNew));
    await this.drain();
  }

  async #create({ node, place }: RecordOf<'node'>, contents: Pieces): Promise<void> {
    const at = place === null ? await this.#stagedPlace(node.inode) : this.#placeOf(place);
    const create = async (): Promise<void> => {
      this.#copies.set(node.inode, await this.#files.create(node, at, contents));
    };
    if (place === null) this.#staged.set(node.inode, node.kind === 'directory' ? 'moved-directory' : 'file');
    // The names of others are added by its number, or in it.
    if (place === null || node.kind === 'directory') await create();
    else await this.#transfers.begin(create);
    if (node.kind === 'directory') this.#setLater(this.#copyOf(node.inode), node, true);
  }

  async #change({ node, contents: hasOther }: RecordOf<'change'>, contents: Pieces): Promise<void> {
    const inode = this.#copyOf(node.inode);
    if (node.kind === 'directory') return this.#setLater(inode, node, false);
    // Near the quota it is overwritten: only its old contents make room for the new ones.
    const isReplaced = hasOther && (await this.#files.hasRoomFor(node.sizeBytes));
    const place = isReplaced ? await this.#files.onlyPlaceOf(inode) : null;
    // At the source the directory may have changed in nothing.
    if (place !== null) await this.#keepLater(place.parent);
    const change = async (): Promise<void> => {
      if (place !== null)
        this.#copies.set(node.inode, await this.#files.replace(inode, node, place, contents));
      else if (hasOther) await this.#files.rewrite(inode, node, contents);
      await this.#files.setAttributes(this.#copyOf(node.inode), node, false);
    };
    const { promise: changed, resolve } = Promise.withResolvers<void>();
    this.#changing.set(node.inode, changed);
    await this.#transfers.begin(() =>
      this.#named(inode, change).finally(() => {
        this.#changing.delete(node.inode);
        resolve();
      }),
    );
  }

  /** A directory gets the attributes back that it has now, unless it gets others. */
  async #keepLater(inode: number): Promise<void> {
    if (inode === this.#staging || this.#directories.has(inode)) return;
    const { attributes } = await this.#client.query({ kind: 'attributes', inode }, this.#call);
    const { mode, uid, gid, modifiedNs } = attributes;
    this.#directories.set(inode, { attributes: { mode, uid, gid, modifiedNs, xattrs: null }, isNew: false });
  }

  #setLater(inode: number, { mode, uid, gid, modifiedNs, xattrs }: Node, isNew: boolean): void {
    this.#directories.set(inode, { attributes: { mode, uid, gid, modifiedNs, xattrs }, isNew });
  }

  async #remove(record: RecordOf<'remove'>): Promise<void> {
    await this.#changing.get(record.inode);
    const copy = this.#copies.get(record.inode);
    const remove = (): Promise<void> => this.#removeName(record);
    await (copy === undefined ? remove() : this.#named(copy, remove));
  }

  async #removeName({ parent, name, inode, isDirectory, isGone }: RecordOf<'remove'>): Promise<void> {
    const place = this.#placeOf({ parent, name });
    if (!isDirectory && (isGone || this.#staged.has(inode))) {
      await this.#client.command({ kind: 'unlink', place, trash: false }, this.#call);
      if (isGone) this.#copies.delete(inode);
      return;
    }
    const to = await this.#stagedPlace(inode);
    await this.#client.command({ kind: 'rename', from: place, to, mode: 'no-replace' }, this.#call);
    this.#staged.set(inode, !isDirectory ? 'file' : isGone ? 'gone-directory' : 'moved-directory');
  }

  async #add({ parent, name, inode, isDirectory }: RecordOf<'add'>): Promise<void> {
    if (isDirectory) {
      this.#waiting.push({ inode, place: { parent, name } });
      return;
    }
    await this.#changing.get(inode);
    const place = this.#placeOf({ parent, name });
    const copy = this.#copyOf(inode);
    const link = { kind: 'link', inode: copy, place } as const;
    await this.#named(copy, () => this.#client.command(link, this.#call));
  }

  /** Runs a change of an inode of the target. @throws ServiceError `protected` with its path */
  async #named<Result>(copy: number, change: () => Promise<Result>): Promise<Result> {
    try {
      return await change();
    } catch (error) {
      if (!(error instanceof ServiceError) || error.code !== 'protected') throw error;
      throw await namedRefusal(this.#client, copy, error, this.#call);
    }
  }

  /** All directories that move are in the staging directory by now: none is put below itself. */
  async #placeDirectory(inode: number, place: Name): Promise<void> {
    if (this.#staged.get(inode) !== 'moved-directory')
      throw generalFailure(`Cannot apply the difference: directory ${inode} has two names`);
    const from = await this.#stagedPlace(inode);
    const to = this.#placeOf(place);
    await this.#client.command({ kind: 'rename', from, to, mode: 'no-replace' }, this.#call);
    this.#staged.delete(inode);
  }

  async #stagedPlace(inode: number): Promise<Extract<Place, { parent: number }>> {
    this.#staging ??= await this.#makeStaging();
    return { parent: this.#staging, name: String(inode) };
  }

  async #makeStaging(): Promise<number> {
    await this.#keepLater(this.#target.root);
    const made = await this.#client.command(
      { kind: 'make-directory', place: this.#stagingPlace(), mode: 0o700, uid: 0, gid: 0 },
      this.#call,
    );
    return made.attributes.inode;
  }

  #stagingPlace(): Place {
    return { parent: this.#target.root, name: this.#stagingName };
  }

  async #removeStaging(): Promise<void> {
    if (this.#staging === null) return;
    for (const [inode, what] of this.#staged) {
      const place = await this.#stagedPlace(inode);
      await this.#transfers.begin(async () => {
        if (what === 'file') await this.#client.command({ kind: 'unlink', place, trash: false }, this.#call);
        else await this.#client.command({ kind: 'remove-directory', place }, this.#call);
      });
      if (what !== 'gone-directory') continue;
      this.#directories.delete(this.#copyOf(inode));
      this.#copies.delete(inode);
    }
    await this.drain();
    this.#staged.clear();
    await this.#client.command({ kind: 'remove-directory', place: this.#stagingPlace() }, this.#call);
    this.#staging = null;
  }

  #placeOf({ parent, name }: Name): Extract<Place, { parent: number }> {
    return { parent: this.#copyOf(parent), name };
  }

  #copyOf(inode: number): number {
    const copy = this.#copies.get(inode);
    if (copy !== undefined) return copy;
    throw generalFailure(
      `Cannot apply the difference: it refers to inode ${inode}, which the copy does not have`,
    );
  }
}

async function* none(): AsyncGenerator<ContentsPiece, void, undefined> {}
