/**
 * A small language for schedules of the lease layer, one command a line; `#` begins a comment. A script says which
 * server opens a cell, which messages are held, which server crashes, and what must hold at the end.
 *
 *     servers 3                      the cluster; also: cells 2, seed 7, algorithm paxoslease,
 *                                    news off, encoded, thrifty, clocks broken
 *     settle                         waits until the first recovery wait and a ballot interval have ended
 *     open a 1, close a 1, release a 1        the cell may be omitted if there is one
 *     view a 1 2 abc joint cde       informs a of the voters of cell 1 in view 2; `members 3` before sets
 *                                    the first number of members, if not all
 *     acquire a 1                    opens it, and a must hold it at once
 *     hold a->bc write, drop *->* learn       messages that do not pass from now on; pass ends that
 *     deliver a->b write             delivers what is held, now
 *     cut a->c [for 200ms], uncut a->c, part a bc, isolate a
 *     crash b [for 1s], restart b, pause b 500ms
 *     clock a +50ms [over 1s]        true time + 50 ms, at once or by running fast
 *     network duplication 1          also: loss 0.1, delay 1ms..60ms
 *     run 100ms, align 600ms         waits; align: until so long after the begin of a ballot interval
 *     await holds a 1 within 1s      also: await renews a. The script fails if it does not happen
 *     expect holds b 1               also: `somebody 1`, held a->b, mark helped, up b,
 *                                    accepted b 1 by c | nothing, convicts a b (of a clock out of bounds)
 *     demand holds b 1 [within 1s]   the rule that the script checks: anything that can be expected
 *     peace                          ends all faults, and demands progress
 *     at 1200ms crash b for 300ms    any of these, so long after the begin
 */
import type { CellId, ServerId } from '../../base/ids.ts';
import { LEASE_MARKS } from '../../lease/actions.ts';
import type { LeaseFrame } from '../../lease/codec.ts';
import type { LeaseAlgorithm } from '../../lease/parameters.ts';
import { leasePeace } from './lease-run.ts';
import { LeaseWords } from './lease-words.ts';
import { CLOCK_SKEW_MAX_MS, LEASE_MS, LeaseWorld, messageOf, RECOVERY_MS } from './lease-world.ts';
import { Violation, violationOf } from './violation.ts';
import { CALM, type Envelope, type Faults, START_MS } from './world.ts';

const INTERVAL_MS = LEASE_MS - CLOCK_SKEW_MAX_MS;

/** Long enough for two round trips on a quiet network. */
const ACQUIRE_MS = 50;

/** The cluster of a script. */
export interface ScriptSettings {
  readonly algorithm: LeaseAlgorithm;
  readonly servers: number;
  readonly cells: number;
  readonly seed: number;
  readonly news: boolean;
  readonly encoded: boolean;
  readonly thrifty: boolean;
  readonly clocksBroken: boolean;
  /** The first number of members, if that changes. */
  readonly firstMembers?: number;
}

const SETTINGS_USUAL: ScriptSettings = {
  algorithm: 'flease',
  servers: 3,
  cells: 1,
  seed: 1,
  news: true,
  encoded: false,
  thrifty: false,
  clocksBroken: false,
};

/** A parsed script. */
export interface LeaseScript {
  readonly settings: ScriptSettings;
  readonly steps: readonly ((stage: Stage) => void)[];
}

export interface Played {
  readonly violation: string | null;
  readonly world: LeaseWorld;
}

/**
 * Parses a script.
 * @param name of the file, for messages
 * @throws ScriptError with the line
 */
export function scriptParse(text: string, name: string): LeaseScript {
  const script = {
    settings: SETTINGS_USUAL,
    steps: [] as ((stage: Stage) => void)[],
  };
  text.split('\n').forEach((line, index) => {
    const { servers, cells } = script.settings;
    const words = new LeaseWords(`${name}:${index + 1}`, line.replace(/#.*/, ''), servers, cells);
    if (words.isOver()) return;
    const command = words.next('a command');
    const setting = SETTINGS[command];
    const step = STEPS[command];
    if (setting !== undefined) {
      if (script.steps.length > 0) words.fail(`"${command}" comes before everything that happens`);
      script.settings = { ...script.settings, ...setting(words) };
    } else if (step !== undefined) {
      script.steps.push(step(words));
    } else {
      words.fail(`there is no command "${command}"`);
    }
    words.end();
  });
  return script;
}

/** Plays a script to its end or to the first violation. */
export function scriptPlay(script: LeaseScript, verbose = false): Played {
  const stage = new Stage(script, verbose);
  const violation = violationOf(() => {
    for (const step of script.steps) step(stage);
  });
  return { violation, world: stage.lease };
}

type Match = (envelope: Envelope<LeaseFrame>) => boolean;

/** A cluster under the control of a script. */
class Stage {
  readonly lease: LeaseWorld;
  readonly clocksBroken: boolean;
  /** What does not pass. The first rule that matches decides. */
  #rules: { readonly matches: Match; readonly verdict: 'hold' | 'drop' }[] = [];

  constructor(script: LeaseScript, verbose: boolean) {
    this.clocksBroken = script.settings.clocksBroken;
    this.lease = new LeaseWorld({ ...script.settings, verbose });
    this.lease.world.start();
  }

  get world() {
    return this.lease.world;
  }

  rule(verdict: 'hold' | 'drop', matches: Match): void {
    this.#rules.push({ matches, verdict });
    this.world.intercept ??= (envelope) =>
      this.#rules.find((rule) => rule.matches(envelope))?.verdict ?? 'pass';
  }

  pass(): void {
    this.#rules = [];
  }

  align(offsetMs: number): void {
    const into = this.world.nowMs % INTERVAL_MS;
    this.world.runFor((offsetMs - into + 2 * INTERVAL_MS) % INTERVAL_MS);
  }
}

// Commands ---------------------------------------------------------------------------------------

type Reader<Result> = (words: LeaseWords) => Result;

const SETTINGS: Readonly<Record<string, Reader<Partial<ScriptSettings>>>> = {
  algorithm: (words) => ({ algorithm: words.oneOf('the algorithm', ['flease', 'paxoslease']) }),
  servers: (words) => ({ servers: words.natural('the number of servers', 1, 26) }),
  cells: (words) => ({ cells: words.natural('the number of cells', 1, 1000) }),
  members: (words) => ({ firstMembers: words.natural('the number of first members', 1, 26) }),
  seed: (words) => ({ seed: words.natural('the seed') }),
  encoded: () => ({ encoded: true }),
  thrifty: () => ({ thrifty: true }),
  news: (words) => ({ news: words.oneOf('news', ['on', 'off']) === 'on' }),
  clocks: (words) => ({ clocksBroken: words.oneOf('clocks', ['right', 'broken']) === 'broken' }),
};

const STEPS: Readonly<Record<string, Reader<(stage: Stage) => void>>> = {
  settle: () => (stage) => stage.world.runFor(RECOVERY_MS + INTERVAL_MS + 10),
  open: (words) => {
    const { server, cell } = ofCell(words);
    const handicapMs = words.skip('after') ? words.durationMs('the handicap') : 0;
    return (stage) => stage.lease.open(server, cell, handicapMs);
  },
  view: (words) => {
    const { server, cell } = ofCell(words);
    const view = words.natural('the number of the view', 1);
    const members = words.group();
    const joint = words.skip('joint') ? words.group() : undefined;
    return (stage) =>
      stage.lease.tell(server, cell, { view, members, ...(joint !== undefined && { joint }) });
  },
  close: (words) => {
    const { server, cell } = ofCell(words);
    return (stage) => stage.lease.close(server, cell);
  },
  release: (words) => {
    const { server, cell } = ofCell(words);
    return (stage) => stage.lease.release(server, cell);
  },
  acquire: (words) => {
    const { server, cell } = ofCell(words);
    return (stage) => {
      stage.lease.open(server, cell);
      const holds = stage.world.runFor(ACQUIRE_MS, () => stage.lease.owns(server, cell));
      if (!holds) words.fail(`${server} does not acquire cell ${cell}`);
    };
  },
  hold: (words) => ruleParse(words, 'hold'),
  drop: (words) => ruleParse(words, 'drop'),
  pass: () => (stage) => stage.pass(),
  deliver: (words) => {
    const matches = matchParse(words);
    return ({ world }) => {
      if (world.deliver(matches) === 0) words.fail('no such message is held');
    };
  },
  cut: (words) => {
    const links = words.links();
    const forMs = words.skip('for') ? words.durationMs('how long') : null;
    return ({ world }) => {
      if (forMs !== null) world.cutFor(links, forMs);
      else for (const [from, to] of links) world.cut(from, to);
    };
  },
  uncut: (words) => {
    const links = words.links();
    return ({ world }) => {
      for (const [from, to] of links) world.uncut(from, to);
    };
  },
  part: (words) => {
    const left = words.group();
    const right = words.group();
    return ({ world }) => {
      for (const from of left) for (const to of right) world.cut(from, to);
      for (const from of right) for (const to of left) world.cut(from, to);
    };
  },
  isolate: (words) => {
    const server = words.server();
    return ({ world }) => world.isolate(server);
  },
  crash: (words) => {
    const server = words.server();
    const forMs = words.skip('for') ? words.durationMs('how long') : null;
    return ({ world }) => (forMs === null ? world.crash(server) : world.crashFor(server, forMs));
  },
  restart: (words) => {
    const server = words.server();
    return ({ world }) => {
      world.crash(server);
      world.restart(server);
    };
  },
  pause: (words) => {
    const server = words.server();
    const forMs = words.durationMs('how long');
    return ({ world }) => world.pause(server, forMs);
  },
  clock: (words) => {
    const server = words.server();
    const offsetMs = words.offsetMs('the offset');
    const overMs = words.skip('over') ? words.durationMs('how long') : null;
    return ({ world }) => {
      if (overMs === null) world.setClock(server, offsetMs);
      else world.slewClock(server, offsetMs, overMs);
    };
  },
  network: (words) => {
    const faults = networkParse(words);
    return ({ world }) => {
      world.faults = { ...CALM, ...faults };
    };
  },
  run: (words) => {
    const ms = words.durationMs('how long');
    return ({ world }) => {
      world.runFor(ms);
    };
  },
  align: (words) => {
    const ms = words.durationMs('how long after the beginning of an interval');
    return (stage) => stage.align(ms);
  },
  await: (words) => {
    const condition = conditionParse(words);
    words.expect('within');
    const ms = words.durationMs('how long');
    return (stage) => {
      const holds = condition(stage.lease);
      if (!stage.world.runFor(ms, holds)) words.fail('what is awaited does not happen, so there is no story');
    };
  },
  expect: (words) => {
    const condition = conditionParse(words);
    return (stage) => {
      if (!condition(stage.lease)()) words.fail('what is expected is not so, so there is no story');
    };
  },
  demand: (words) => {
    const said = words.place.replace(/.*\//, '');
    const condition = conditionParse(words);
    const ms = words.skip('within') ? words.durationMs('how long') : 0;
    return (stage) => {
      if (!stage.world.runFor(ms, condition(stage.lease)))
        throw new Violation(`What ${said} demands is not so`);
    };
  },
  at: (words) => {
    const atMs = words.durationMs('when');
    const step = STEPS[words.oneOf('what happens then', Object.keys(STEPS))]?.(words);
    return (stage) => stage.world.at(START_MS + atMs, () => step?.(stage));
  },
  peace: () => (stage) => leasePeace(stage.lease, stage.clocksBroken),
};

/** A condition; created once before waiting, and checked at each moment. */
type Condition = (lease: LeaseWorld) => () => boolean;

/** The condition depends on the present only. */
function now(holds: (lease: LeaseWorld) => boolean): Condition {
  return (lease) => () => holds(lease);
}

const CONDITIONS: Readonly<Record<string, Reader<Condition>>> = {
  holds: (words) => {
    const { server, cell } = ofCell(words);
    return now((lease) => lease.owns(server, cell));
  },
  somebody: (words) => {
    const cell = words.cell();
    return now((lease) => lease.holders(cell).length > 0);
  },
  convicts: (words) => {
    const [server, peer] = [words.server(), words.server()];
    return now((lease) => lease.host(server)?.clockOffset(peer)?.outOfBounds ?? false);
  },
  renews: (words) => {
    const { server, cell } = ofCell(words);
    return (lease) => {
      const endMs = () => lease.host(server)?.inspect(cell)?.own?.untilMs ?? -Infinity;
      const before = endMs();
      return () => endMs() > before;
    };
  },
  held: (words) => {
    const { from, to } = words.link();
    const count = words.isCell() ? words.natural('how many', 0) : null;
    return now(({ world }) => {
      const found = world.held.filter((held) => from.includes(held.from) && to.includes(held.to)).length;
      return count === null ? found > 0 : found === count;
    });
  },
  mark: (words) => {
    const mark = words.oneOf('a mark', LEASE_MARKS);
    return now((lease) => lease.marks.has(mark));
  },
  accepted: (words) => {
    const { server, cell } = ofCell(words);
    const nothing = words.skip('nothing');
    if (!nothing) words.expect('by');
    const holder = nothing ? null : words.server();
    return now((lease) => (lease.host(server)?.inspect(cell)?.register.lease?.holder ?? null) === holder);
  },
  up: (words) => {
    const server = words.server();
    return now(({ world }) => world.isUp(server));
  },
};

function conditionParse(words: LeaseWords): Condition {
  const what = words.oneOf('what', Object.keys(CONDITIONS));
  return (CONDITIONS[what] as Reader<Condition>)(words);
}

function ofCell(words: LeaseWords): { server: ServerId; cell: CellId } {
  return { server: words.server(), cell: words.cell() };
}

/** `a->bc write`: messages on these links, of these kinds or of any. */
function matchParse(words: LeaseWords): Match {
  const { from, to } = words.link();
  const kinds = words.kinds();
  return (envelope) =>
    from.includes(envelope.from) &&
    to.includes(envelope.to) &&
    (kinds.length === 0 || kinds.includes(messageOf(envelope).kind));
}

function ruleParse(words: LeaseWords, verdict: 'hold' | 'drop'): (stage: Stage) => void {
  const matches = matchParse(words);
  return (stage) => stage.rule(verdict, matches);
}

function networkParse(words: LeaseWords): Partial<Faults> {
  let faults: Partial<Faults> = {};
  while (!words.isOver()) {
    const what = words.oneOf('what the network does', ['loss', 'duplication', 'delay'] as const);
    if (what !== 'delay') {
      faults = { ...faults, [what]: words.fraction(what) };
      continue;
    }
    const text = words.next('the delay');
    const range = delayParse(text) ?? words.fail(`a delay reads like 1ms..60ms, not "${text}"`);
    faults = { ...faults, ...range };
  }
  return faults;
}

/** `1ms..60ms` */
export function delayParse(text: string): { delayMinMs: number; delayMaxMs: number } | null {
  const match = /^(\d+(?:\.\d+)?)ms\.\.(\d+(?:\.\d+)?)ms$/.exec(text);
  if (match === null) return null;
  const delayMinMs = Number(match[1]);
  const delayMaxMs = Number(match[2]);
  return delayMinMs <= delayMaxMs ? { delayMinMs, delayMaxMs } : null;
}
