import { contentVersionCompare } from '../../wire/content-version.ts';
import type { ContentVersion, FileState } from '../backend.ts';

/** More own changes of a file are never under way: beyond that, the entries follow a change of another client. */
const AHEAD_MAX = 64;

/**
 * The version that the kernel has: the last answered one, advanced by own changes, which may be answered in any order,
 * until one of another client comes between.
 */
export class Lineage {
  #version: ContentVersion;
  /** By the version before them: own changes that do not follow `#version` yet. */
  readonly #ahead = new Map<string, ContentVersion>();

  constructor(version: ContentVersion) {
    this.#version = version;
  }

  is(version: ContentVersion): boolean {
    return contentVersionCompare(version, this.#version) === 0;
  }

  /** Adds an own change. @returns whether all changes up to it are known to be own */
  changed({ before, contents }: Pick<FileState, 'before' | 'contents'>): boolean {
    if (before === undefined) return false;
    this.#ahead.set(keyOf(before), contents);
    if (this.#ahead.size > AHEAD_MAX) this.#ahead.clear();
    for (;;) {
      const key = keyOf(this.#version);
      const next = this.#ahead.get(key);
      if (next === undefined) break;
      this.#ahead.delete(key);
      this.#version = next;
    }
    return contentVersionCompare(contents, this.#version) <= 0;
  }

  /** The kernel gets this version. @returns whether it had another one */
  answered(version: ContentVersion): boolean {
    if (this.is(version)) return false;
    this.#version = version;
    this.#ahead.clear();
    return true;
  }
}

function keyOf({ epoch, seq }: ContentVersion): string {
  return `${epoch}.${seq}`;
}
