/**
 * A small language for schedules of composed servers, clients and mounts, one statement a line; `#` begins a comment.
 * A server is `s1`, `s2` …, or a name that `let` has defined; `a/2` is a second program on the mount `a`.
 *
 *     servers 5, replicas 5, seed 2               the cluster; before everything else
 *     own-catalogs                                each volume has a catalog of its own
 *     mount a cache=ttl:1s,op_timeout=6s          a machine with a mount, and the options of `-o`
 *     client c 20s                                a machine with a client library, and its time limit
 *     let p be catalog-primary                    also: catalog-backup, a catalog server that is not the primary;
 *                                                 volume-primary [more], of the catalog that has the volume;
 *                                                 stranger /x, a server without a replica of the file
 *     same p q, different p q                     whether two names mean one server
 *
 *     a: open f /x creat|excl|wronly              a program's call, which succeeds; mounts have the calls of
 *                                                 test/posix/calls.py, clients those of client-calls.ts;
 *                                                 x{30000} is so many x
 *     a: chattr /x immutable                      sets these flags; fchattr f …; of a client: flags /x …
 *     a: get /x gives hello                       ... with this value; `gives` alone: with an empty one
 *     a: open f /x creat|excl|wronly fails EEXIST        also: fails (with any error), may fail
 *     a starts: fsync f                           makes the call, and the schedule continues
 *     a ends [fails ETIMEDOUT]                    waits for its outcome
 *     a waits                                     it has no outcome yet
 *
 *     hold R request of a [to s1] TEXT …          holds the next request with these texts in method, path or body, as
 *                                                 `R`; =/v1/births is the whole path
 *     hold R answer of a TEXT …                   executes it, and holds its answer
 *     lose R request of a TEXT …, lose R answer of a TEXT …         breaks its connection
 *     hold all R request of a …                   all such requests from now on
 *     hold R message s1->s2 ack /x                holds the next message of this kind about the file (see
 *                                                 replica/messages.ts), and all later ones in this direction;
 *                                                 s1->*: to each; instead of a path: catalog, or an inode; also a
 *                                                 call of a state transfer, such as snapshot-pages
 *     await R                                     waits until the rule has met one
 *     release R, drop R                           what is held arrives, even if its caller does not wait; or is lost
 *
 *     wake a 100ms                                the kernel of a processes each reply so much later from now on
 *     shrink a                                    the kernel of a forgets names and inodes that are not in use
 *     pause a [9s], resume a, kill s1, start s1, power s1 s2 (lose power at once, and restart)
 *     damage s1 /x 0                              flips a bit of object 0 of the file on the disk of s1, up or down
 *     damage s1 database                          flips a bit of its databases; s1 is down
 *     damage s1 names                             damages the catalog's first page of names, which no start needs;
 *                                                 s1 is down
 *     rebuild s1                                  starts it with --rebuild
 *     fail s1 sync objects, failed s1             the next read, write or sync of a file with this text in its path
 *                                                 fails; it has failed
 *     cut a [s1 s2], heal                         no message passes between them, or between a and all others
 *     wait 9s
 *
 * At the end each process that the schedule has not ended must run, and each file has one member set per view.
 */
import { Prng } from '../../../../base/prng.ts';
import { ScriptError, Words } from '../../script-words.ts';
import {
  type CallOutcome,
  onStage,
  STAGE_USUAL,
  type Stage,
  StageError,
  type StageSettings,
} from './stage.ts';

const AWAIT_MS_MAX = 60_000;

type Step = (stage: Stage) => Promise<void>;

/** One statement and its line. */
interface PlacedStep {
  readonly place: string;
  readonly line: string;
  readonly run: Step;
}

/** A parsed schedule. */
export interface Schedule {
  readonly settings: StageSettings;
  readonly steps: readonly PlacedStep[];
}

/**
 * Parses a schedule.
 * @param name of the file, for messages
 * @throws ScriptError with the line
 */
export function scheduleParse(text: string, name: string): Schedule {
  let settings = STAGE_USUAL;
  const steps: PlacedStep[] = [];
  for (const [index, whole] of text.split('\n').entries()) {
    const line = whole.replace(/(^|\s)#.*/, '').trim();
    const words = new Words(`${name}:${index + 1}`, line);
    if (words.isOver()) continue;
    const setting = SETTINGS[words.peek()];
    if (setting !== undefined) {
      if (steps.length > 0) words.fail(`"${words.peek()}" comes before everything that happens`);
      words.next('a setting');
      settings = { ...settings, ...setting(words) };
    } else steps.push({ place: words.place, line, run: stepParse(words) });
    words.end();
  }
  return { settings, steps };
}

/**
 * Runs a schedule on a cluster of its own.
 * @param onNote is called with each line of the trace
 * @throws ScriptError with the line that does not happen
 */
export async function schedulePlay(
  { settings, steps }: Schedule,
  onNote?: (line: string) => void,
): Promise<void> {
  await onStage(settings, onNote, async (stage) => {
    for (const { place, line, run } of steps) {
      stage.cluster.time.note(`${place}: ${line}`);
      try {
        await run(stage);
        stage.lookAtViews();
        stage.lookAtProcesses();
      } catch (error) {
        if (!(error instanceof StageError)) throw error;
        throw new ScriptError(`${place}: ${line}: ${error.message}`);
      }
    }
  });
}

type Setting = (words: Words) => Partial<StageSettings>;

const SETTINGS: Readonly<Record<string, Setting>> = {
  servers: (words) => ({ servers: words.natural('the number of servers', 1, 7) }),
  replicas: (words) => ({ replicas: words.natural('the number of replicas', 1, 5) }),
  seed: (words) => ({ seed: words.natural('the seed') }),
  'own-catalogs': () => ({ ownCatalogs: true }),
};

type Reader = (words: Words) => Step;

const COMMANDS: Readonly<Record<string, Reader>> = {
  mount: (words) => {
    const name = words.next('a name');
    const options = words.next('options');
    return (stage) => stage.mount(name, options);
  },
  client: (words) => {
    const name = words.next('a name');
    const limitMs = words.isOver() ? AWAIT_MS_MAX : words.durationMs('the limit of an operation');
    return async (stage) => stage.client(name, limitMs);
  },
  let: (words) => {
    const name = words.next('a name');
    words.expect('be');
    const what = words.oneOf('what it is', [
      ...['catalog-primary', 'catalog-backup', 'volume-primary', 'stranger'],
    ]);
    if (what === 'stranger') {
      const path = words.next('a path');
      return async (stage) => stage.alias(name, await stage.stranger(path));
    }
    if (what === 'volume-primary') {
      const volume = words.isOver() ? undefined : words.next('a volume');
      return async (stage) => stage.alias(name, await stage.volumePrimary(volume));
    }
    const isPrimary = what === 'catalog-primary';
    return async (stage) => {
      const primary = await stage.catalogPrimary();
      const backup = stage.cluster.serverIds.find((id) => id !== primary) as string;
      stage.alias(name, isPrimary ? primary : backup);
    };
  },
  same: (words) => comparedParse(words, true),
  different: (words) => comparedParse(words, false),
  hold: (words) => trafficParse(words, 'hold'),
  lose: (words) => trafficParse(words, 'lose'),
  await: (words) => {
    const name = words.next('the name of a rule');
    return async (stage) => {
      if (!(await stage.wait(AWAIT_MS_MAX, () => stage.held.met(name) > 0)))
        throw new StageError('it meets nothing');
    };
  },
  release: (words) => endParse(words, 'go'),
  drop: (words) => endParse(words, 'lose'),
  pause: (words) => {
    const name = words.next('who');
    const forMs = words.isOver() ? Number.POSITIVE_INFINITY : words.durationMs('how long');
    return async (stage) => stage.victim(name).pause(forMs);
  },
  wake: (words) => {
    const name = words.next('a mount');
    const delayMs = words.durationMs('how much later');
    return async (stage) => stage.wakeAfter(name, delayMs);
  },
  shrink: (words) => ofMachine(words, (stage, name) => stage.shrink(name)),
  resume: (words) => ofMachine(words, (stage, name) => stage.victim(name).resume()),
  kill: (words) =>
    ofMachine(words, (stage, name) => {
      if (stage.isServer(name)) stage.server(name).kill();
      else stage.victim(name).end();
    }),
  start: (words) => ofMachine(words, (stage, name) => stage.server(name).start()),
  power: (words) => {
    const names = rest(words);
    return async (stage) => {
      const servers = names.map((name) => stage.server(name));
      for (const server of servers) server.losePower();
      for (const server of servers) server.start();
    };
  },
  damage: (words) => {
    const [server, path] = [words.next('a server'), words.next('a path')];
    if (path === 'database') return async (stage) => void stage.server(server).disk.rotDatabase(new Prng(1));
    if (path === 'names') return async (stage) => void stage.server(server).disk.damageNames();
    const object = words.natural('an object');
    return (stage) => stage.damage(server, path, object);
  },
  rebuild: (words) =>
    ofMachine(words, (stage, name) => {
      stage.server(name).rebuilds = true;
      stage.server(name).start();
    }),
  fail: (words) => {
    const server = words.next('a server');
    const access = words.oneOf('what', ['read', 'write', 'sync']);
    const of = new RegExp(words.next('a text of the path'));
    return async (stage) => stage.server(server).disk.failNext(access, of);
  },
  failed: (words) =>
    ofMachine(words, (stage, name) => {
      if (!stage.server(name).disk.hasFailed) throw new StageError('nothing has failed');
    }),
  cut: (words) => {
    const [name = words.fail('who is missing'), ...others] = rest(words);
    return async (stage) => {
      const machine = stage.machine(name);
      const from = others.length === 0 ? stage.machines : others.map((other) => stage.machine(other));
      for (const other of from) {
        if (other === machine) continue;
        stage.cluster.network.cut(machine, other);
        stage.cluster.network.cut(other, machine);
      }
    };
  },
  heal: () => async (stage) => stage.cluster.network.heal(),
  wait: (words) => {
    const forMs = words.durationMs('how long');
    return async (stage) => void (await stage.wait(forMs));
  },
};

/** The words that may follow the name of a program. */
const VERBS: Readonly<Record<string, (words: Words, who: string) => Step>> = {
  'starts:': (words, who) => {
    const [call = '', ...values] = valuesOf(rest(words));
    return async (stage) => void stage.start(who, call, values);
  },
  ends: (words, who) => {
    const expected = expectationParse(words, rest(words));
    return async (stage) => expected.check(await stage.ended(stage.underWay(who)));
  },
  waits: (_words, who) => async (stage) => {
    const { outcome } = stage.underWay(who);
    if (outcome !== null) throw new StageError(`it has ended, and ${outcomeText(outcome)}`);
  },
};

function stepParse(words: Words): Step {
  const first = words.next('a statement');
  if (first.endsWith(':')) return callParse(words, first.slice(0, -1));
  const verb = VERBS[words.peek()];
  const command = COMMANDS[first];
  if (command !== undefined) return command(words);
  if (verb === undefined) {
    const known = [...Object.keys(COMMANDS), 'NAME: CALL', ...Object.keys(VERBS).map((one) => `NAME ${one}`)];
    return words.fail(`a statement begins with ${known.join(', ')}, not with "${first}"`);
  }
  words.next('what it does');
  return verb(words, first);
}

function callParse(words: Words, who: string): Step {
  const all = rest(words);
  const at = all.findIndex((word) => EXPECTATIONS[word] !== undefined);
  const [call, ...values] = valuesOf(at < 0 ? all : all.slice(0, at));
  if (call === undefined) return words.fail('a call is missing');
  const expected = expectationParse(words, at < 0 ? [] : all.slice(at));
  return async (stage) => expected.check(await stage.ended(stage.start(who, call, values)));
}

interface Expectation {
  /** @throws StageError if the outcome is another one */
  check(outcome: CallOutcome): void;
}

const EXPECTATIONS: Readonly<Record<string, (words: readonly string[]) => Expectation | string>> = {
  gives: (words) => {
    const [wanted = ''] = valuesOf([words.join(' ')]);
    return expecting(`gives ${wanted.slice(0, 60)}`, ({ value }) => value?.trimEnd() === wanted);
  },
  fails: ([errno, ...more]) => {
    if (more.length > 0) return `nothing is expected after "${errno}"`;
    return expecting(`fails ${errno ?? ''}`, (outcome) =>
      errno === undefined ? outcome.errno !== undefined : outcome.errno === errno,
    );
  },
  may: (words) => (words.join() === 'fail' ? expecting('ends', () => true) : '"may fail" is expected'),
};

function expectationParse(words: Words, said: readonly string[]): Expectation {
  const [kind, ...values] = said;
  if (kind === undefined) return expecting('succeeds', ({ errno }) => errno === undefined);
  const expectation =
    EXPECTATIONS[kind]?.(values) ?? `an outcome begins with ${Object.keys(EXPECTATIONS).join(', ')}`;
  return typeof expectation === 'string' ? words.fail(expectation) : expectation;
}

function expecting(wanted: string, isMet: (outcome: CallOutcome) => boolean): Expectation {
  return {
    check: (outcome) => {
      if (!isMet(outcome)) throw new StageError(`expected: ${wanted}; it ${outcomeText(outcome)}`);
    },
  };
}

function outcomeText({ value, errno }: CallOutcome): string {
  return errno === undefined ? `gives "${value?.slice(0, 60)}"` : `fails ${errno}`;
}

function trafficParse(words: Words, verdict: 'hold' | 'lose'): Step {
  const all = words.skip('all');
  const name = words.next('a name');
  const what = words.oneOf('what', ['request', 'answer', 'message']);
  if (what === 'message') return messageParse(words, name);
  words.expect('of');
  const who = words.next('who');
  const to = words.skip('to') ? words.next('a server') : null;
  const texts = rest(words);
  return async (stage) => {
    const origin = to === null ? null : stage.origin(to);
    stage.held.add({ name, verdict, what, from: stage.machine(who), origin, texts, all });
  };
}

function messageParse(words: Words, name: string): Step {
  const link = words.next('a link');
  const [from, to] = link.split('->');
  if (from === undefined || to === undefined) return words.fail(`a link reads like s1->s2, not "${link}"`);
  const [kind, path] = [words.next('a kind of message'), words.next('a path')];
  return async (stage) => {
    const isNumber = /^\d+$/.test(path);
    const file = isNumber ? Number(path) : path === 'catalog' ? 0 : await stage.inodeOf(path);
    const sender = stage.machine(from);
    const receivers =
      to === '*' ? stage.cluster.serverIds.filter((id) => id !== sender) : [stage.machine(to)];
    stage.held.addMessage({ name, from: sender, to: receivers, kind, file });
  };
}

function comparedParse(words: Words, areSame: boolean): Step {
  const [a, b] = [words.next('a server'), words.next('a server')];
  return async (stage) => {
    const [one, other] = [stage.machine(a), stage.machine(b)];
    if ((one === other) !== areSame) throw new StageError(`"${a}" means ${one}, and "${b}" ${other}`);
  };
}

function endParse(words: Words, how: 'go' | 'lose'): Step {
  const name = words.next('the name of a rule');
  return async (stage) => {
    if (stage.held.end(name, how) === 0) throw new StageError('nothing is held');
  };
}

function ofMachine(words: Words, run: (stage: Stage, name: string) => void): Step {
  const name = words.next('who');
  return async (stage) => run(stage, name);
}

function rest(words: Words): string[] {
  const all: string[] = [];
  while (!words.isOver()) all.push(words.next('a word'));
  return all;
}

/** Expands `x{30000}` to so many x. */
function valuesOf(words: readonly string[]): string[] {
  return words.map((word) =>
    word.replace(/(.)\{(\d+)\}/g, (_, one: string, count: string) => one.repeat(Number(count))),
  );
}
