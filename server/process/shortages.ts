import { readdir, readFile } from 'node:fs/promises';
import type { Logger } from 'pino';
import type { Timer, World } from '../../base/world.ts';

const CHECK_MS = 2_000;
/** A shortage begins at this part of the limit, and ends below `ENDS`. */
const BEGINS = 0.9;
const ENDS = 0.8;
const REFUSED_MS = 60_000;

export interface Descriptors {
  readonly open: number;
  readonly max: number;
}

export interface ShortagesParts {
  readonly world: World;
  readonly log: Logger;
  readonly connections: () => { readonly count: number; readonly max: number; readonly refused: number };
  readonly descriptors: () => Promise<Descriptors | null>;
  readonly changed: (shortages: readonly string[]) => void;
  readonly nowMs: () => number;
}

/** Detects that connections or descriptors run out, for the server's status and events. */
export class Shortages {
  readonly #parts: ShortagesParts;
  #current: ReadonlyMap<string, string> = new Map();
  #refused = 0;
  #refusedMs = Number.NEGATIVE_INFINITY;
  #timer: Timer | null = null;

  constructor(parts: ShortagesParts) {
    this.#parts = parts;
  }

  /** Clauses that complete "Server s1 …". */
  get current(): readonly string[] {
    return [...this.#current.values()];
  }

  start(): void {
    this.#timer = this.#parts.world.every(CHECK_MS, () => void this.check()).unref();
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = null;
  }

  async check(): Promise<void> {
    const { connections, descriptors, changed, log, nowMs } = this.#parts;
    const found = new Map<string, string>();
    const { count, max, refused } = connections();
    if (refused > this.#refused) this.#refusedMs = nowMs();
    this.#refused = refused;
    if (nowMs() - this.#refusedMs < REFUSED_MS)
      found.set('refused', 'refuses connections: too many are open');
    if (this.#isShort('connections', count, max))
      found.set('connections', `has nearly all of its ${max} connections in use`);
    const opened = await descriptors().catch(() => null);
    if (opened !== null && this.#isShort('descriptors', opened.open, opened.max))
      found.set('descriptors', `has nearly all of its ${opened.max} file descriptors open`);
    const before = [...this.#current.keys()].join();
    this.#current = found;
    if ([...found.keys()].join() === before) return;
    const details = { connections: count, refused, ...(opened === null ? {} : { descriptors: opened.open }) };
    if (found.size > 0) log.warn(details, `this server ${this.current.join('; it ')}`);
    else log.info(details, 'the shortage of connections or descriptors is over');
    changed(this.current);
  }

  #isShort(what: string, count: number, max: number): boolean {
    return count >= max * (this.#current.has(what) ? ENDS : BEGINS);
  }
}

export async function ownDescriptors(): Promise<Descriptors | null> {
  const max = await descriptorsMax();
  if (max === null) return null;
  return { open: (await readdir('/proc/self/fd')).length, max };
}

async function descriptorsMax(): Promise<number | null> {
  const limits = await readFile('/proc/self/limits', 'utf8').catch(() => '');
  const max = Number(/^Max open files +(\d+)/m.exec(limits)?.[1]);
  return Number.isSafeInteger(max) ? max : null;
}
