import { contentVersionCompare } from '../../wire/content-version.ts';
import type { ContentVersion, FileState } from '../backend.ts';

/** More changes of one file are never under way at a time: what is kept beyond that follows something of somebody else. */
const AHEAD_MAX = 64;

/**
 * Which version of a file's contents somebody has who was told one, and has made the changes since then himself: for as long as nobody
 * else's comes between them. Changes that are under way together are answered in any order.
 */
export class Lineage {
  #version: ContentVersion;
  /** What own changes have become, by what they have changed: those that do not follow the version yet. */
  readonly #ahead = new Map<string, ContentVersion>();

  constructor(version: ContentVersion) {
    this.#version = version;
  }

  is(version: ContentVersion): boolean {
    return contentVersionCompare(version, this.#version) === 0;
  }

  /**
   * An own change has been answered.
   *
   * @returns whether everything from the version until after this change is known to be our own
   */
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

  /** Whoever has it is told of this version. @returns whether that is another one than he has */
  told(version: ContentVersion): boolean {
    if (this.is(version)) return false;
    this.#version = version;
    this.#ahead.clear();
    return true;
  }
}

function keyOf({ epoch, seq }: ContentVersion): string {
  return `${epoch}.${seq}`;
}
