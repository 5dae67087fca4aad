/**
 * A random run as an explicit schedule: everything that fell to chance and everything that clients asked
 * for, as a list from which single items can be taken. Its text is a script of `lease-script.ts`.
 */
import { unreachable } from '../../base/assert.ts';
import type { ServerId } from '../../base/ids.ts';
import type { Chance } from './chronicle.ts';
import { type LeaseRunOptions, leaseRun } from './lease-run.ts';
import { type Played, type ScriptSettings, scriptParse, scriptPlay } from './lease-script.ts';
import type { ClientCall } from './lease-world.ts';
import { durationText } from './script-words.ts';
import { START_MS } from './world.ts';

export interface Schedule {
  readonly settings: ScriptSettings;
  readonly items: readonly ScheduleItem[];
  /** True time from the beginning until it ends, or until peace begins. */
  readonly runMs: number;
  readonly peace: boolean;
}

export type ScheduleItem = Chance | ClientCall;

/** @returns the schedule of a random run and the violation it met, or null for that */
export function scheduleOfSeed(
  seed: number,
  options: LeaseRunOptions = {},
): { schedule: Schedule; violation: string | null } {
  const chronicle: Chance[] = [];
  const calls: ClientCall[] = [];
  const { violation, world, shape } = leaseRun(seed, { ...options, chronicle, calls });
  const { algorithm, servers, cells, news, encoded, thrifty, clocksBroken, stormEndMs, firstMembers } = shape;
  const inStorm = violation !== null && world.world.nowMs - START_MS <= stormEndMs;
  const items: ScheduleItem[] = [...chronicle];
  // What peace asks for, it asks for itself.
  for (const call of calls) if (call.atMs < stormEndMs) items.push(call);
  return {
    violation,
    schedule: {
      settings: {
        algorithm,
        servers,
        cells,
        seed,
        news,
        encoded,
        thrifty,
        clocksBroken,
        ...(firstMembers !== undefined && { firstMembers }),
      },
      items,
      runMs: inStorm ? Math.ceil(world.world.nowMs - START_MS) : stormEndMs,
      peace: !inStorm,
    },
  };
}

/** Plays a schedule by its text, so that what is printed is what failed. */
export function schedulePlay(schedule: Schedule, verbose = false): Played {
  return scriptPlay(scriptParse(scheduleText(schedule), 'schedule'), verbose);
}

export function scheduleText(schedule: Schedule): string {
  const { settings, items, runMs, peace } = schedule;
  const lines = settings.algorithm === 'flease' ? [] : [`algorithm ${settings.algorithm}`];
  lines.push(`servers ${settings.servers}`);
  if (settings.firstMembers !== undefined) lines.push(`members ${settings.firstMembers}`);
  if (settings.cells > 1) lines.push(`cells ${settings.cells}`);
  lines.push(`seed ${settings.seed}`);
  if (!settings.news) lines.push('news off');
  if (settings.encoded) lines.push('encoded');
  if (settings.thrifty) lines.push('thrifty');
  if (settings.clocksBroken) lines.push('clocks broken');
  const dated = items.filter((item) => 'atMs' in item);
  dated.sort((a, b) => a.atMs - b.atMs);
  for (const item of dated) lines.push(itemText(item));
  for (const item of items) if (!('atMs' in item)) lines.push(itemText(item));
  lines.push(`run ${durationText(runMs)}`);
  if (peace) lines.push('peace');
  return `${lines.join('\n')}\n`;
}

function itemText(item: ScheduleItem): string {
  switch (item.kind) {
    case 'message': {
      const fate =
        item.delaysMs.length === 0 ? 'lost' : `after ${item.delaysMs.map(durationText).join(' and ')}`;
      return `message ${item.from}->${item.to} ${item.number} ${fate}`;
    }
    case 'timer':
      return `timer ${item.server} ${item.number} late ${durationText(item.lateMs)}`;
    case 'clock': {
      const sign = item.offsetMs < 0 ? '' : '+';
      const over = item.overMs === 0 ? '' : ` over ${durationText(item.overMs)}`;
      return `at ${durationText(item.atMs)} clock ${item.server} ${sign}${durationText(item.offsetMs)}${over}`;
    }
    case 'pause':
      return `at ${durationText(item.atMs)} pause ${item.server} ${durationText(item.forMs)}`;
    case 'crash':
      return `at ${durationText(item.atMs)} crash ${item.server} for ${durationText(item.forMs)}`;
    case 'cut': {
      const links = item.links.map(([from, to]) => `${from}->${to}`).join(' ');
      return `at ${durationText(item.atMs)} cut ${links} for ${durationText(item.forMs)}`;
    }
    case 'open': {
      const after = item.handicapMs === 0 ? '' : ` after ${durationText(item.handicapMs)}`;
      return `at ${durationText(item.atMs)} open ${item.server} ${item.cell}${after}`;
    }
    case 'view': {
      const { view, members, joint } = item.view;
      const to = joint === undefined ? '' : ` joint ${joint.join('')}`;
      return `at ${durationText(item.atMs)} view ${item.server} ${item.cell} ${view} ${members.join('')}${to}`;
    }
    case 'close':
    case 'release':
      return `at ${durationText(item.atMs)} ${item.kind} ${item.server} ${item.cell}`;
    default:
      return unreachable(item);
  }
}

/** @returns whether an item needs a server to exist */
export function itemNames(item: ScheduleItem, server: ServerId): boolean {
  if (item.kind === 'message') return item.from === server || item.to === server;
  if (item.kind === 'cut') return item.links.some((link) => link.includes(server));
  if (item.kind === 'view') {
    const { members, joint = [] } = item.view;
    return item.server === server || members.includes(server) || joint.includes(server);
  }
  return item.server === server;
}
