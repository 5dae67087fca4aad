import type { Attributes } from './backend.ts';
import { UPTAKE_MS_MAX } from './kernel/uptake.ts';
import { contentsName } from './transport.ts';

interface Told {
  /** Names the contents. */
  readonly version: string;
  readonly untilMs: number;
}

/**
 * Of which contents the size is that the kernel was told by a path, and may believe still: it would cut what it reads of later contents at
 * that. For a transport by which the kernel cannot be told to drop what it believes, and looks each path up before it opens it.
 */
export class ToldContents {
  readonly #believedMs: number;
  /** By path; what was told last at the end. */
  readonly #told = new Map<string, Told>();
  /** Which path each caller has to look up once more, and until when that can be what it comes back from. */
  readonly #refused = new Map<number, { readonly path: string; readonly untilMs: number }>();

  /** @param believedMs for how long the kernel believes what it is told */
  constructor(believedMs: number) {
    this.#believedMs = believedMs;
  }

  /** The kernel is about to be told. */
  tell(path: string, { inode, kind, contents }: Attributes): void {
    if (kind !== 'file' || this.#believedMs === 0) return;
    const untilMs = performance.now() + this.#believedMs + UPTAKE_MS_MAX;
    renew(this.#told, path, { version: contentsName(inode, contents), untilMs });
  }

  /**
   * Asked before the kernel is told that the path is open. Whoever is refused looks the path up and comes again: what differs then was
   * changed meanwhile, and is opened as it was before that.
   *
   * @param version names the contents that are opened
   * @param caller thread that opens it; 0 for all those of other containers, who have no number here
   * @returns whether it has to look the path up once more
   */
  isOutdated(path: string, version: string, caller: number): boolean {
    const nowMs = performance.now();
    const refused = this.#refused.get(caller);
    if (caller !== 0) this.#refused.delete(caller);
    const told = this.#told.get(path);
    if (told === undefined || told.untilMs < nowMs || told.version === version) return false;
    if (refused?.path === path && refused.untilMs >= nowMs) return false;
    renew(this.#refused, caller, { path, untilMs: nowMs + this.#believedMs });
    return true;
  }
}

/** Puts it at the end; what is over leaves at the beginning. */
function renew<Key, Value extends { readonly untilMs: number }>(
  map: Map<Key, Value>,
  key: Key,
  value: Value,
): void {
  const nowMs = performance.now();
  for (const [oldest, { untilMs }] of map) {
    if (untilMs >= nowMs) break;
    map.delete(oldest);
  }
  map.delete(key);
  map.set(key, value);
}
