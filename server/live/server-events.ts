import type { ServerId } from '../../base/ids.ts';
import type { ServerEvent } from '../../wire/live-api.ts';

const KEPT_MAX = 256;
/** Events of one kind in one window; more are counted, and reported as one. */
const PER_WINDOW_MAX = 6;
const WINDOW_MS = 1_000;

export interface ServerEventsParts {
  readonly self: ServerId;
  readonly life: string;
  /** Monotonic, in milliseconds. */
  nowMs(): number;
  /** In milliseconds since 1970. */
  wallMs(): number;
}

export type NewServerEvent = Omit<ServerEvent, 'id' | 'atMs' | 'server' | 'path'>;

interface Window {
  readonly sinceMs: number;
  keptCount: number;
  droppedCount: number;
}

/**
 * The last few hundred events of this server, in memory. A server that becomes the primary of ten thousand files
 * reports some of them, and the number of the others.
 */
export class ServerEvents {
  readonly #parts: ServerEventsParts;
  readonly #windows = new Map<NewServerEvent['kind'], Window>();
  #kept: ServerEvent[] = [];
  #last = 0;

  constructor(parts: ServerEventsParts) {
    this.#parts = parts;
  }

  get life(): string {
    return this.#parts.life;
  }

  /** Number of the last event; 0 before the first. */
  get last(): number {
    this.#closeWindows();
    return this.#last;
  }

  add(event: NewServerEvent): void {
    this.#closeWindows();
    const nowMs = this.#parts.nowMs();
    const window = this.#windows.get(event.kind) ?? { sinceMs: nowMs, keptCount: 0, droppedCount: 0 };
    this.#windows.set(event.kind, window);
    if (window.keptCount < PER_WINDOW_MAX) {
      window.keptCount++;
      this.#keep(event);
    } else {
      window.droppedCount++;
    }
  }

  /** @returns the events after number `after` that are kept */
  after(after: number): readonly ServerEvent[] {
    this.#closeWindows();
    const first = this.#last - this.#kept.length;
    return this.#kept.slice(Math.max(0, after - first));
  }

  #closeWindows(): void {
    const nowMs = this.#parts.nowMs();
    for (const [kind, { sinceMs, droppedCount }] of this.#windows) {
      if (nowMs - sinceMs < WINDOW_MS) continue;
      this.#windows.delete(kind);
      if (droppedCount > 0) this.#keep({ kind: 'more', mood: 'neutral', text: moreText(droppedCount, kind) });
    }
  }

  #keep(event: NewServerEvent): void {
    const { self, life } = this.#parts;
    this.#last++;
    const kept = {
      id: `${self}.${life}.${this.#last}`,
      server: self,
      atMs: this.#parts.wallMs(),
      ...event,
    };
    this.#kept = [...this.#kept.slice(1 - KEPT_MAX), kept];
  }
}

function moreText(count: number, kind: NewServerEvent['kind']): string {
  return `${count} more ${count === 1 ? 'event' : 'events'} of this kind (${kind}).`;
}
