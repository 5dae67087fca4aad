import { ServiceError } from '../../base/errors.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import type { TreeCopy } from '../../wire/http-api.ts';
import { displayPath, type FilePath, volumePath } from '../requests/path.ts';
import type { Gateway } from '../routing/gateway.ts';
import { currentOf } from './conditional-change.ts';
import type { Conditions } from './conditions.ts';
import type { Directories } from './directories.ts';
import { copyFile, NO_CONDITIONS } from './file-copy.ts';
import type { NewFiles } from './new-files.ts';
import type { Removal } from './removal.ts';

/** One request begins nothing new after this long, or this many names: the next request continues. */
const COPY_MS_MAX = 10_000;
const NAMES_MAX = 2_000;
const PAGE_COUNT = 200;
const FILES_AT_ONCE = 8;
/** Nesting of directories; paths are not longer. */
const DEPTH_MAX = 4_096;
const SKIPPED_TOLD_MAX = 100;

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
 * but each file whole, and of one version. A copy that ended early continues after what is done.
 */
export class TreeCopier {
  readonly #parts: Parts;
  readonly #options: TreeCopyOptions;
  readonly #conditions: Conditions;
  readonly #endMs: number;
  #namesLeft = NAMES_MAX;
  readonly #told = { files: 0, directories: 0, links: 0, bytes: 0, same: 0 };
  readonly #skipped: string[] = [];
  /** The target directory; a link in the source may lead to it. */
  #target = 0;
  /** The last name that is done with all before it. */
  #done: readonly string[];
  /** Repeats the directories and links of this request, in order. */
  readonly #makings: (() => Promise<unknown>)[] = [];
  /** An epoch of the catalog from before they existed. */
  #madeIn: number;

  constructor(parts: Parts, options: TreeCopyOptions) {
    this.#parts = parts;
    this.#endMs = parts.gateway.world.nowMs() + COPY_MS_MAX;
    this.#options = options;
    this.#conditions = options.overwrite ? NO_CONDITIONS : { ...NO_CONDITIONS, ifNoneMatch: '*' };
    this.#done = options.after;
    this.#madeIn = parts.gateway.catalogEpoch;
  }

  async copy(from: FilePath, to: FilePath): Promise<TreeCopy> {
    const source = await currentOf(this.#parts.gateway, from, { follow: true, live: false });
    if (source === null) throw new ServiceError('not-found', `There is no ${displayPath(from)}`);
    if (source.kind !== 'directory')
      throw new ServiceError('not-directory', `${displayPath(from)} is not a directory`);
    if (isWithin(from, to)) throw belowItself(from);
    await this.#parts.directories.parentOf(to);
    this.#target = await this.#directory(source, to, this.#options.after.length > 0);
    this.#makings.push(() => this.#directory(source, to, true));
    const isWhole = await this.#inside(source, from, to, this.#options.after, []);
    await this.#parts.gateway.findDurably(() => this.#madeAgain());
    const skipped = this.#skipped.slice(0, SKIPPED_TOLD_MAX);
    return {
      ...this.#told,
      skipped,
      more: !isWhole,
      ...(isWhole ? {} : { next: this.#done.join('/') }),
    };
  }

  /** A loss of power may have taken directories and links of an earlier epoch: makes them again. Files are durable. */
  async #madeAgain(): Promise<true> {
    const epoch = this.#parts.gateway.catalogEpoch;
    if (epoch === this.#madeIn) return true;
    const told = { ...this.#told };
    for (const make of this.#makings) await unlessGone(make());
    Object.assign(this.#told, told);
    this.#madeIn = epoch;
    return true;
  }

  /** Copies the entries after `after`; `at` is the path from the source. @returns false if time is up before the end */
  async #inside(
    directory: Attributes,
    from: FilePath,
    to: FilePath,
    after: readonly string[],
    at: readonly string[],
  ): Promise<boolean> {
    if (at.length > DEPTH_MAX)
      throw new ServiceError('bad-request', `Directories are nested deeper than ${DEPTH_MAX}`);
    const [begun = '', ...rest] = after;
    if (rest.length > 0 && !(await this.#goOn(directory, begun, from, to, rest, at))) return false;
    for (let last = begun; ; ) {
      const { entries, more } = await this.#parts.gateway.queryCatalog({
        kind: 'list',
        inode: directory.inode,
        after: last,
        countMax: PAGE_COUNT,
        ...shownIn(directory),
      });
      // Without `overwrite` nothing after a failure may exist when the copy is repeated.
      for (const group of groupsOf(entries, this.#options.overwrite ? FILES_AT_ONCE : 1)) {
        if (this.#namesLeft <= 0 || this.#parts.gateway.world.nowMs() > this.#endMs) return false;
        this.#namesLeft -= group.length;
        for (const { attributes } of group)
          if (attributes.inode === this.#target && attributes.snapshot === undefined) throw belowItself(from);
        await this.#copied(group, from, to, at);
        const [first] = group;
        if (first?.attributes.kind === 'directory') {
          const [source, target] = [below(from, first.name), below(to, first.name)];
          if (!(await this.#inside(first.attributes, source, target, [], [...at, first.name]))) return false;
          this.#done = [...at, first.name];
        }
      }
      const end = entries.at(-1);
      if (!more || end === undefined) return true;
      last = end.name;
    }
  }

  /** Continues in the directory in which the previous request ended. A removed one has nothing left to copy. */
  async #goOn(
    directory: Attributes,
    name: string,
    from: FilePath,
    to: FilePath,
    after: readonly string[],
    at: readonly string[],
  ): Promise<boolean> {
    const query = { kind: 'lookup', parent: directory.inode, name, ...shownIn(directory) } as const;
    const attributes = await unlessGone(
      this.#parts.gateway.queryCatalog(query).then((found) => found.attributes),
    );
    if (attributes?.kind !== 'directory') return true;
    const isWhole = await this.#inside(attributes, below(from, name), below(to, name), after, [...at, name]);
    if (isWhole) this.#done = [...at, name];
    return isWhole;
  }

  async #copied(group: readonly Entry[], from: FilePath, to: FilePath, at: readonly string[]): Promise<void> {
    const outcomes = await Promise.allSettled(
      group.map(({ name, attributes }) => this.#entry(attributes, below(to, name), [...at, name])),
    );
    for (const [place, outcome] of outcomes.entries()) {
      const { name = '', attributes } = group[place] ?? {};
      if (outcome.status === 'rejected') throw this.#brokenOff(below(from, name), outcome.reason);
      // A directory is done only with all its entries.
      if (attributes?.kind !== 'directory') this.#done = [...at, name];
    }
  }

  async #entry(source: Attributes, to: FilePath, at: readonly string[]): Promise<void> {
    switch (source.kind) {
      case 'directory':
        await this.#make(() => this.#directory(source, to, true));
        return;
      case 'file': {
        const { removal, resume } = this.#options;
        if (resume && (await this.#isThere(source, to))) {
          this.#told.same++;
          return;
        }
        const how = { conditions: this.#conditions, removal, mode: source.mode, keepsTime: resume };
        const file = await unlessGone(copyFile(this.#parts.files, async () => this.#now(source), to, how));
        if (file === null) return;
        this.#told.files++;
        this.#told.bytes += file.attributes.sizeBytes;
        return;
      }
      case 'symlink':
        await this.#make(() => this.#link(source, to));
        this.#told.links++;
        return;
      default:
        this.#skipped.push(`/${at.join('/')}`);
    }
  }

  async #make(make: () => Promise<unknown>): Promise<void> {
    await make();
    this.#makings.push(make);
  }

  async #isThere(source: Attributes, to: FilePath): Promise<boolean> {
    const there = await currentOf(this.#parts.gateway, to, { follow: false, live: true });
    if (there?.kind !== 'file') return false;
    const now = await unlessGone(this.#now(source));
    return now?.sizeBytes === there.sizeBytes && now.modifiedNs === there.modifiedNs;
  }

  async #now(source: Attributes): Promise<Attributes> {
    const { inode, snapshot } = source;
    if (snapshot !== undefined) return source;
    return (await this.#parts.gateway.query({ kind: 'attributes', inode })).attributes;
  }

  /** Returns its number. `joins`: it may exist already. */
  async #directory({ mode, uid, gid }: Attributes, to: FilePath, joins: boolean): Promise<number> {
    const { gateway } = this.#parts;
    if (to.names.length > 0) {
      const place = { volume: to.volume, path: volumePath(to.names) };
      try {
        const made = await gateway.command({ kind: 'make-directory', place, mode, uid, gid });
        this.#told.directories++;
        return made.attributes.inode;
      } catch (error) {
        const isThere = error instanceof ServiceError && error.code === 'exists';
        if (!isThere || !(joins || this.#options.overwrite)) throw error;
      }
    }
    const there = await currentOf(gateway, to, { follow: false, live: false });
    if (there?.kind === 'directory') return there.inode;
    throw new ServiceError('exists', `${displayPath(to)} already exists and is a ${there?.kind ?? 'name'}`);
  }

  async #link({ target, uid, gid }: Attributes, to: FilePath): Promise<void> {
    const { gateway } = this.#parts;
    const place = { volume: to.volume, path: volumePath(to.names) };
    const make = () => gateway.command({ kind: 'symlink', place, target, uid, gid });
    try {
      await make();
    } catch (error) {
      if (!(error instanceof ServiceError && error.code === 'exists')) throw error;
      const there = await currentOf(gateway, to, { follow: false, live: false });
      if (there?.kind === 'symlink' && there.target === target) return;
      if (!this.#options.overwrite) throw error;
      await gateway.command({ kind: 'unlink', place, ...this.#options.removal });
      await make();
    }
  }

  #brokenOff(at: FilePath, reason: unknown): unknown {
    if (!(reason instanceof ServiceError)) return reason;
    const { files, directories } = this.#told;
    const after = encodeURIComponent(this.#done.join('/'));
    return new ServiceError(
      reason.code,
      `Cannot copy ${displayPath(at)}: ${reason.message}. Copied so far: ${files} files, ${directories} ` +
        `directories; to continue, repeat the request with "after=${after}"`,
      reason.details,
    );
  }
}

/** Groups of one directory, or of a few files: when a name is done, so is all before it. */
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

async function unlessGone<Value>(work: Promise<Value>): Promise<Value | null> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof ServiceError && error.code === 'not-found') return null;
    throw error;
  }
}

/** The entries of a snapshot's directory belong to the snapshot, too. */
function shownIn({ snapshot }: Attributes): { readonly snapshot?: number } {
  return snapshot === undefined ? {} : { snapshot };
}
