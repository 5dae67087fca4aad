import type { World } from '../../base/world.ts';
import type { Attributes } from '../backend.ts';
import { contentsName } from '../transport.ts';
import { UPTAKE_MS_MAX } from './uptake.ts';

interface Told {
  /** Names the contents. */
  readonly version: string;
  readonly untilMs: number;
  /** Thread that was answered; 0 where that is not known, or there were several. */
  readonly caller: number;
  /**
   * When another caller was told of other contents: of two answers that are under way at a time the kernel throws away the one that was asked
   * for before it took up the other.
   */
  readonly othersMs: number;
}

/**
 * Of which contents the size is that the kernel was told by a path, and may believe still: it would cut what it reads of later contents at
 * that. For a transport by which the kernel cannot be told to drop what it believes, and looks each path up before it opens it.
 */
export class ToldContents {
  readonly #world: World;
  readonly #believedMs: number;
  /** By path; what was told last at the end. */
  readonly #told = new Map<string, Told>();
  /** Which path each caller has to look up once more, and until when that can be what it comes back from. */
  readonly #refused = new Map<number, { readonly path: string; readonly untilMs: number }>();

  /** @param believedMs for how long the kernel believes what it is told */
  constructor(world: World, believedMs: number) {
    this.#world = world;
    this.#believedMs = believedMs;
  }

  /** The kernel is about to be told. @param caller thread that asked; 0 where that is not known */
  tell(path: string, { inode, kind, contents }: Attributes, caller: number): void {
    if (kind !== 'file' || this.#believedMs === 0) return;
    const nowMs = this.#world.nowMs();
    const before = this.#told.get(path);
    const version = contentsName(inode, contents);
    const isSame = before?.version === version;
    const isOwn = caller !== 0 && (before === undefined || before.caller === caller);
    renew(nowMs, this.#told, path, {
      ...{ version, caller: isOwn || !isSame ? caller : 0 },
      untilMs: nowMs + this.#believedMs + UPTAKE_MS_MAX,
      othersMs: isSame || isOwn ? (before?.othersMs ?? Number.NEGATIVE_INFINITY) : nowMs,
    });
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
    const nowMs = this.#world.nowMs();
    const refused = this.#refused.get(caller);
    if (caller !== 0) this.#refused.delete(caller);
    const told = this.#told.get(path);
    if (told === undefined || told.untilMs < nowMs) return false;
    const mayDiffer = nowMs - told.othersMs < UPTAKE_MS_MAX;
    if (told.version === version && !mayDiffer) return false;
    if (refused?.path === path && refused.untilMs >= nowMs) return false;
    renew(nowMs, this.#refused, caller, { path, untilMs: nowMs + this.#believedMs });
    return true;
  }
}

/** Puts it at the end; what is over leaves at the beginning. */
function renew<Key, Value extends { readonly untilMs: number }>(
  nowMs: number,
  map: Map<Key, Value>,
  key: Key,
  value: Value,
): void {
  for (const [oldest, { untilMs }] of map) {
    if (untilMs >= nowMs) break;
    map.delete(oldest);
  }
  map.delete(key);
  map.set(key, value);
}
