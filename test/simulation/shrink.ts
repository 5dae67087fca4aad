/**
 * Makes a failing schedule short: takes out faults, servers, cells and time as long as the same rule is
 * still broken. Zeller's delta debugging over the list of items, then rounder numbers. Deterministic.
 */
import type { ServerId } from '../../base/ids.ts';
import { CLOCK_DRIFT_MAX } from '../../lease/parameters.ts';
import { shorterLists } from './delta-debugging.ts';
import { itemNames, type Schedule, type ScheduleItem, schedulePlay } from './schedule.ts';
import { violationKind } from './violation.ts';
import { START_MS } from './world.ts';

const PLAYS_MAX = 20_000;

/** Farthest that a clock's rate may be from that of true time, and a little for rounding. */
const RATE_MAX = CLOCK_DRIFT_MAX * 1.001;

export interface Shrunk {
  readonly schedule: Schedule;
  readonly violation: string;
  /** How many schedules were tried. */
  readonly plays: number;
}

/**
 * @param violation what the schedule is known to end with
 * @returns the shortest schedule found that breaks the same rule, or null if played without dice the schedule breaks none
 */
export function scheduleShrink(schedule: Schedule, violation: string): Shrunk | null {
  const shrinking = new Shrinking(schedule, violationKind(violation));
  if (!shrinking.adopt(schedule)) return null;
  for (let before = Infinity; before > shrinking.size; ) {
    before = shrinking.size;
    shrinking.dropKinds();
    shrinking.dropServers();
    shrinking.dropCells();
    // What can go depends on what went before: later messages are counted anew.
    shrinking.dropItems('first-first');
    shrinking.dropItems('last-first');
    shrinking.dropSettings();
    shrinking.shorten();
  }
  shrinking.round();
  return { schedule: shrinking.best, violation: shrinking.violation, plays: shrinking.plays };
}

class Shrinking {
  best: Schedule;
  violation = '';
  plays = 0;
  readonly #rule: string;

  constructor(schedule: Schedule, rule: string) {
    this.best = schedule;
    this.#rule = rule;
  }

  get size(): number {
    const { settings, items } = this.best;
    return items.length + settings.servers + settings.cells;
  }

  /** Goes on from this schedule if it breaks the same rule. */
  adopt(schedule: Schedule): boolean {
    if (this.plays >= PLAYS_MAX || !ratesAreKept(schedule)) return false;
    this.plays++;
    const { violation, world } = schedulePlay(schedule);
    if (violation === null || violationKind(violation) !== this.#rule) return false;
    const endMs = Math.ceil(world.world.nowMs - START_MS);
    const inTime = endMs <= schedule.runMs;
    this.best = inTime ? { ...schedule, runMs: endMs, peace: false } : schedule;
    this.violation = violation;
    return true;
  }

  /** The cheapest first: everything of one kind. */
  dropKinds(): void {
    for (const kind of ['timer', 'message', 'clock', 'pause', 'crash', 'cut', 'close', 'release'] as const) {
      this.#keep((item) => item.kind !== kind);
    }
    for (const server of new Set(this.best.items.flatMap(clockOf))) {
      this.#keep((item) => item.kind !== 'clock' || item.server !== server);
    }
    this.#keep((item) => item.kind !== 'message' || item.delaysMs.length === 0);
    this.#keep((item) => item.kind !== 'message' || item.delaysMs.length === 1);
  }

  dropServers(): void {
    while (this.best.settings.servers > 1) {
      const { settings, items } = this.best;
      const last = String.fromCharCode(96 + settings.servers) as ServerId;
      const { firstMembers = settings.servers } = settings;
      // Fewer first members would be another cell.
      if (firstMembers === settings.servers && settings.firstMembers !== undefined) return;
      const smaller = { ...settings, servers: settings.servers - 1 };
      const rest = items.filter((item) => !itemNames(item, last));
      if (!this.adopt({ ...this.best, settings: smaller, items: rest })) return;
    }
  }

  dropCells(): void {
    while (this.best.settings.cells > 1) {
      const { settings, items } = this.best;
      const fewer = { ...settings, cells: settings.cells - 1 };
      const rest = items.filter((item) => !('cell' in item) || item.cell <= fewer.cells);
      if (!this.adopt({ ...this.best, settings: fewer, items: rest })) return;
    }
  }

  dropSettings(): void {
    const { settings } = this.best;
    if (settings.encoded) this.adopt({ ...this.best, settings: { ...settings, encoded: false } });
    if (settings.thrifty) this.adopt({ ...this.best, settings: { ...settings, thrifty: false } });
    if (!settings.news) this.adopt({ ...this.best, settings: { ...this.best.settings, news: true } });
  }

  dropItems(order: 'first-first' | 'last-first'): void {
    const lists = shorterLists(this.best.items, order);
    let step = lists.next();
    while (step.done !== true) step = lists.next(this.adopt({ ...this.best, items: step.value }));
  }

  /** Takes out time: everything after a moment comes earlier. */
  shorten(): void {
    for (const byMs of [8000, 4000, 2000, 1000, 500]) {
      for (let fromMs = 0; fromMs + byMs < this.best.runMs; fromMs += byMs) {
        const items = this.best.items.map((item) =>
          'atMs' in item && item.atMs > fromMs ? { ...item, atMs: Math.max(fromMs, item.atMs - byMs) } : item,
        );
        this.adopt({ ...this.best, items, runMs: this.best.runMs - byMs });
      }
    }
  }

  /** Rounds numbers as far as the schedule lets it, for whoever has to read it. */
  round(): void {
    for (const grain of [100, 10, 1]) {
      for (let at = 0; at < this.best.items.length; at++) {
        const item = this.best.items[at] as ScheduleItem;
        const rounded = itemRound(item, grain);
        if (JSON.stringify(rounded) === JSON.stringify(item)) continue;
        this.adopt({ ...this.best, items: this.best.items.map((kept, i) => (i === at ? rounded : kept)) });
      }
    }
  }

  #keep(keeps: (item: ScheduleItem) => boolean): void {
    const items = this.best.items.filter(keeps);
    if (items.length < this.best.items.length) this.adopt({ ...this.best, items });
  }
}

/**
 * PaxosLease relies on the rates of clocks, and without the moves before it a move goes a longer way in
 * the same time. A schedule whose clocks run too fast proves nothing.
 */
function ratesAreKept({ settings, items }: Schedule): boolean {
  if (settings.algorithm !== 'paxoslease') return true;
  const courses = new Map<ServerId, { sinceMs: number; offsetMs: number; untilMs: number; slew: number }>();
  const moves = items.filter((item) => item.kind === 'clock').sort((a, b) => a.atMs - b.atMs);
  return moves.every(({ server, atMs, offsetMs, overMs }) => {
    const course = courses.get(server) ?? { sinceMs: 0, offsetMs: 0, untilMs: 0, slew: 0 };
    const here = course.offsetMs + course.slew * (Math.min(atMs, course.untilMs) - course.sinceMs);
    // A clock may show anything in the beginning.
    const slew = overMs === 0 ? 0 : (offsetMs - here) / overMs;
    const jumps = overMs === 0 && atMs > 0;
    courses.set(server, {
      sinceMs: atMs,
      offsetMs: overMs === 0 ? offsetMs : here,
      untilMs: atMs + overMs,
      slew,
    });
    return !jumps && Math.abs(slew) <= RATE_MAX;
  });
}

function clockOf(item: ScheduleItem): ServerId[] {
  return item.kind === 'clock' ? [item.server] : [];
}

function itemRound(item: ScheduleItem, grain: number): ScheduleItem {
  const rounded = (ms: number) => Math.round(ms / grain) * grain;
  switch (item.kind) {
    case 'message':
      return { ...item, delaysMs: item.delaysMs.map((ms) => Math.max(rounded(ms), Math.min(ms, 1))) };
    case 'timer':
      return { ...item, lateMs: rounded(item.lateMs) };
    case 'clock':
      return {
        ...item,
        atMs: rounded(item.atMs),
        offsetMs: rounded(item.offsetMs),
        overMs: item.overMs === 0 ? 0 : Math.max(1, rounded(item.overMs)),
      };
    case 'pause':
    case 'crash':
    case 'cut':
      return { ...item, atMs: rounded(item.atMs), forMs: Math.max(1, rounded(item.forMs)) };
    default:
      return { ...item, atMs: rounded(item.atMs) };
  }
}
