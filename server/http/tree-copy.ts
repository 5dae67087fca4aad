import { ServiceError } from '../../base/errors.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import type { TreeCopy } from '../../wire/http-api.ts';
import type { AttachedAt } from '../../wire/junctions.ts';
import { displayPath, type FilePath, volumePath } from '../requests/path.ts';
import type { CatalogGateway } from '../routing/catalog-gateway.ts';
import type { Gateway } from '../routing/gateway.ts';
import { attributesAt, preconditionOf } from './conditional-change.ts';
import { type Conditions, NO_CONDITIONS } from './conditions.ts';
import type { Directories } from './directories.ts';
import { copyFile } from './file-copy.ts';
import type { NewFiles } from './new-files.ts';
import type { Removal } from './removal.ts';

/** One request begins nothing new after this long, or this many names: the next request continues. */
const COPY_MS_MAX = 10_000;
const NAMES_MAX = 2_000;
const PAGE_COUNT = 200;
const FILES_AT_ONCE = 8;
/** Nesting of directories; paths are not longer. */
const DEPTH_MAX = 4_096;
const SKIPPED_LISTED_MAX = 100;

export interface TreeCopyOptions {
  readonly overwrite: boolean;
  /** Files get their sources' times; a target with the size and time of its source is left alone (decision 0057). */
  readonly resume: boolean;
  /** Names below the source that are done, from the previous answer; empty at first. */
  readonly after: readonly string[];
  readonly removal: Removal;
}

interface Parts {
  readonly gateway: Gateway;
  readonly files: NewFiles;
  readonly directories: Directories;
}

type Entry = { readonly name: string; readonly attributes: Attributes };

/**
 * Copies a directory in the order of names, each before its entries. It is not atomic: readers see parts of the copy,
 * but each file whole, and of one version. A copy that ended early continues after what is done. It ends at attached
 * volumes: the catalog of the source lists nothing in their directories.
 */
export class TreeCopier {
  readonly #parts: Parts;
  readonly #options: TreeCopyOptions;
  readonly #conditions: Conditions;
  readonly #endMs: number;
  #namesBudget = NAMES_MAX;
  readonly #counts = { files: 0, directories: 0, links: 0, bytes: 0, same: 0 };
  readonly #skipped: string[] = [];
  readonly #junctions: AttachedAt[] = [];
  /** Inode of the target directory; a link in the source may lead to it. */
  #target = 0;
  /** Path from the source to the last entry that is copied, with all before it. */
  #done: readonly string[];
  /** Functions that create the directories and links of this request again, in order. */
  readonly #creations: (() => Promise<unknown>)[] = [];
  /** An epoch of the target's catalog from before they were created. */
  #createdEpoch = 0;

  constructor(parts: Parts, options: TreeCopyOptions) {
    this.#parts = parts;
    this.#endMs = parts.gateway.world.nowMs() + COPY_MS_MAX;
    this.#options = options;
    this.#conditions = options.overwrite ? NO_CONDITIONS : { ...NO_CONDITIONS, ifNoneMatch: '*' };
    this.#done = options.after;
  }

  async copy(from: FilePath, to: FilePath): Promise<TreeCopy> {
    const source = await attributesAt(this.#parts.gateway, from, { follow: true, live: false });
    if (source === null) throw new ServiceError('not-found', `There is no ${displayPath(from)}`);
    if (source.kind !== 'directory')
      throw new ServiceError('not-directory', `${displayPath(from)} is not a directory`);
    if (isWithin(from, to)) throw belowItself(from);
    const { inode } = await this.#parts.directories.parentOf(to);
    const catalog = this.#parts.gateway.ofInode(inode);
    this.#createdEpoch = catalog.epoch;
    this.#target = await this.#createDirectory(source, to, this.#options.after.length > 0);
    this.#creations.push(() => this.#createDirectory(source, to, true));
    const isWhole = await this.#copyEntries(source, from, to, this.#options.after, []);
    await catalog.findDurably(() => this.#repeatCreations(catalog));
    const skipped = this.#skipped.slice(0, SKIPPED_LISTED_MAX);
    return {
      ...this.#counts,
      skipped,
      ...(this.#junctions.length === 0 ? {} : { junctions: this.#junctions.slice(0, SKIPPED_LISTED_MAX) }),
      more: !isWhole,
      ...(isWhole ? {} : { next: this.#done.join('/') }),
    };
  }

  /** If the catalog's epoch has changed, a loss of power may have undone directories and links: creates them again. */
  async #repeatCreations({ epoch }: CatalogGateway): Promise<true> {
    if (epoch === this.#createdEpoch) return true;
    const counts = { ...this.#counts };
    for (const create of this.#creations) await nullIfMissing(create());
    Object.assign(this.#counts, counts);
    this.#createdEpoch = epoch;
    return true;
  }

  /** Copies a directory's entries after `after`. @param at path from the source @returns false if a limit is reached */
  async #copyEntries(
    directory: Attributes,
    from: FilePath,
    to: FilePath,
    after: readonly string[],
    at: readonly string[],
  ): Promise<boolean> {
    if (at.length > DEPTH_MAX)
      throw new ServiceError('bad-request', `Directories are nested deeper than ${DEPTH_MAX}`);
    const [firstName = '', ...rest] = after;
    if (rest.length > 0 && !(await this.#continueIn(directory, firstName, from, to, rest, at))) return false;
    for (let last = firstName; ; ) {
      const { entries, more } = await this.#parts.gateway.queryCatalog({
        kind: 'list',
        inode: directory.inode,
        after: last,
        countMax: PAGE_COUNT,
        ...shownIn(directory),
      });
      // Without `overwrite` nothing after a failure may exist when the copy is repeated.
      for (const group of groupsOf(entries, this.#options.overwrite ? FILES_AT_ONCE : 1)) {
        if (this.#namesBudget <= 0 || this.#parts.gateway.world.nowMs() > this.#endMs) return false;
        this.#namesBudget -= group.length;
        for (const { attributes } of group)
          if (attributes.inode === this.#target && attributes.snapshot === undefined) throw belowItself(from);
        await this.#copyGroup(group, from, to, at);
        const [first] = group;
        if (first?.attributes.kind === 'directory') {
          const [source, target] = [below(from, first.name), below(to, first.name)];
          if (!(await this.#copyEntries(first.attributes, source, target, [], [...at, first.name])))
            return false;
          this.#done = [...at, first.name];
        }
      }
      const end = entries.at(-1);
      if (!more || end === undefined) return true;
      last = end.name;
    }
  }

  /** Continues in the directory in which the previous request ended. A removed one has nothing left to copy. */
  async #continueIn(
    directory: Attributes,
    name: string,
    from: FilePath,
    to: FilePath,
    after: readonly string[],
    at: readonly string[],
  ): Promise<boolean> {
    const query = { kind: 'lookup', parent: directory.inode, name, ...shownIn(directory) } as const;
    const attributes = await nullIfMissing(
      this.#parts.gateway.queryCatalog(query).then((found) => found.attributes),
    );
    if (attributes?.kind !== 'directory') return true;
    const isWhole = await this.#copyEntries(attributes, below(from, name), below(to, name), after, [
      ...at,
      name,
    ]);
    if (isWhole) this.#done = [...at, name];
    return isWhole;
  }

  /** Copies a group concurrently, without entries of directories, and advances `#done`. */
  async #copyGroup(
    group: readonly Entry[],
    from: FilePath,
    to: FilePath,
    at: readonly string[],
  ): Promise<void> {
    const outcomes = await Promise.allSettled(
      group.map(({ name, attributes }) => this.#copyEntry(attributes, below(to, name), [...at, name])),
    );
    for (const [place, outcome] of outcomes.entries()) {
      const { name = '', attributes } = group[place] ?? {};
      if (outcome.status === 'rejected') throw this.#withProgress(below(from, name), outcome.reason);
      // A directory is done only with all its entries.
      if (attributes?.kind !== 'directory') this.#done = [...at, name];
    }
  }

  async #copyEntry(source: Attributes, to: FilePath, at: readonly string[]): Promise<void> {
    switch (source.kind) {
      case 'directory':
        if (source.junction !== undefined)
          this.#junctions.push({ path: `/${at.join('/')}`, volume: source.junction.volume });
        await this.#createAndRemember(() => this.#createDirectory(source, to, true));
        return;
      case 'file': {
        const { removal, resume } = this.#options;
        if (resume && (await this.#isCopied(source, to))) {
          this.#counts.same++;
          return;
        }
        const precondition = preconditionOf(this.#conditions, to);
        const options = { precondition, removal, mode: source.mode, keepsTime: resume };
        const file = await nullIfMissing(
          copyFile(this.#parts.files, async () => this.#currentSource(source), to, options),
        );
        if (file === null) return;
        this.#counts.files++;
        this.#counts.bytes += file.attributes.sizeBytes;
        return;
      }
      case 'symlink':
        await this.#createAndRemember(() => this.#createLink(source, to));
        this.#counts.links++;
        return;
      default:
        this.#skipped.push(`/${at.join('/')}`);
    }
  }

  async #createAndRemember(create: () => Promise<unknown>): Promise<void> {
    await create();
    this.#creations.push(create);
  }

  /** @returns whether the target is a file with the size and time of the source */
  async #isCopied(source: Attributes, to: FilePath): Promise<boolean> {
    const existing = await attributesAt(this.#parts.gateway, to, { follow: false, live: true });
    if (existing?.kind !== 'file') return false;
    const now = await nullIfMissing(this.#currentSource(source));
    return now?.sizeBytes === existing.sizeBytes && now.modifiedNs === existing.modifiedNs;
  }

  async #currentSource(source: Attributes): Promise<Attributes> {
    const { inode, snapshot } = source;
    if (snapshot !== undefined) return source;
    return (await this.#parts.gateway.query({ kind: 'attributes', inode })).attributes;
  }

  /** Creates a directory. @param joins whether it may exist already @returns its inode number */
  async #createDirectory({ mode, uid, gid }: Attributes, to: FilePath, joins: boolean): Promise<number> {
    const { gateway } = this.#parts;
    if (to.names.length > 0) {
      const place = { volume: to.volume, path: volumePath(to.names) };
      try {
        const created = await gateway.command({ kind: 'make-directory', place, mode, uid, gid });
        this.#counts.directories++;
        return created.attributes.inode;
      } catch (error) {
        const exists = error instanceof ServiceError && error.code === 'exists';
        if (!exists || !(joins || this.#options.overwrite)) throw error;
      }
    }
    const existing = await attributesAt(gateway, to, { follow: false, live: false });
    if (existing?.kind === 'directory') return existing.inode;
    throw new ServiceError(
      'exists',
      `${displayPath(to)} already exists and is a ${existing?.kind ?? 'name'}`,
    );
  }

  async #createLink({ target, uid, gid }: Attributes, to: FilePath): Promise<void> {
    const { gateway } = this.#parts;
    const place = { volume: to.volume, path: volumePath(to.names) };
    const create = () => gateway.command({ kind: 'symlink', place, target, uid, gid });
    try {
      await create();
    } catch (error) {
      if (!(error instanceof ServiceError && error.code === 'exists')) throw error;
      const existing = await attributesAt(gateway, to, { follow: false, live: false });
      if (existing?.kind === 'symlink' && existing.target === target) return;
      if (!this.#options.overwrite) throw error;
      await gateway.command({ kind: 'unlink', place, ...this.#options.removal });
      await create();
    }
  }

  #withProgress(at: FilePath, reason: unknown): unknown {
    if (!(reason instanceof ServiceError)) return reason;
    const { files, directories } = this.#counts;
    const after = encodeURIComponent(this.#done.join('/'));
    return new ServiceError(
      reason.code,
      `Cannot copy ${displayPath(at)}: ${reason.message}. Copied so far: ${files} files, ${directories} ` +
        `directories; to continue, repeat the request with "after=${after}"`,
      reason.details,
    );
  }
}

/** Yields groups that are copied concurrently, in the order of names: one directory, or up to `filesMax` others. */
function* groupsOf(entries: readonly Entry[], filesMax: number): Generator<readonly Entry[]> {
  let group: Entry[] = [];
  for (const entry of entries) {
    const isDirectory = entry.attributes.kind === 'directory';
    if (group.length > 0 && (isDirectory || group.length === filesMax)) {
      yield group;
      group = [];
    }
    if (isDirectory) yield [entry];
    else group.push(entry);
  }
  if (group.length > 0) yield group;
}

function below(path: FilePath, name: string): FilePath {
  return { ...path, names: [...path.names, name], directory: false };
}

function isWithin(outer: FilePath, inner: FilePath): boolean {
  return outer.volume === inner.volume && outer.names.every((name, place) => inner.names[place] === name);
}

function belowItself(path: FilePath): ServiceError {
  return new ServiceError('bad-request', `Cannot copy ${displayPath(path)} into itself`);
}

async function nullIfMissing<Value>(work: Promise<Value>): Promise<Value | null> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof ServiceError && error.code === 'not-found') return null;
    throw error;
  }
}

/** Returns the fields of a query for a directory's entries: those of a snapshot's directory belong to the snapshot. */
function shownIn({ snapshot }: Attributes): { readonly snapshot?: number } {
  return snapshot === undefined ? {} : { snapshot };
}
