/**
 * Directed runs of a replica group. A script controls leases, network and disks, and `ReplicaObserver` judges. The
 * scripts are in `test/testdata/simulation/replica`: the name of a case, and below it indented statements, divided by
 * `;`. `#` begins a comment.
 *
 *     servers 5, replicas 3          the cluster, first; also: begins made, begins created, resumes, agrees,
 *                                    lease 100ms, read-lease 1500ms, start-guard 2s, two-leases (two may exist)
 *     lead a [for 200ms]             gives a leases (of 2 s) until it is the primary
 *     grant a 2s [view 1], revoke a  gives a lease, decided in a view; ends it
 *     isolate ab, rejoin             no message reaches or leaves a and b; ends that for all
 *     drop a->bc write, hold *->* other, part ab      messages that do not pass now (`other`: all but those of a
 *                                    replica; part: between a or b and the others); `once`: for one message;
 *                                    `pass` ends it all, and then `deliver [2]` delivers
 *     write a x, commit a x          a change of a session of its own, and 40 ms; it commits. A value is a
 *                                    letter, `x@1` one of key 1
 *     change a 91 x                  a change of session 91, which repeats it; no wait: ask b, flush a, move a acd
 *     answer change done             the answer to the last change, ask, flush or move: done, unknown, moved, flushed,
 *                                    the value of an ask, nothing (yet), or `not done`; `ask:b`: of b;
 *                                    position change 1: the operation of a change
 *     read a, shown a x              a read, and 40 ms; its value, `empty`, `nothing` (no answer), `something`, `not x`
 *     create x [71]                  the creator gets the contents
 *     run [350ms], crash ab, start a, restart ab, pause a 400ms, open a, stop a
 *     lose-power ab, wipe a, disk b 20ms [promise]    unsynced data is lost; all is; the duration of a step of b's disk
 *     role a active, role a not active, serves a yes, guarded a yes, epoch a 2, inherits a 2 | nothing,
 *     trust a intact | none, count created 1, members abc   what must hold
 */
import type { ServerId } from '../../base/ids.ts';
import type { ReplicaMessage } from '../../replica/messages.ts';
import type { Write } from './replica-disk.ts';
import { type GroupOptions, ReplicaGroup } from './replica-group.ts';
import type { Answer, Reply } from './replica-messages.ts';
import type { ReplicaServer } from './replica-server.ts';
import {
  type Step as CaseStep,
  type Cases,
  casesRead,
  SERVERS_MAX,
  type Statements,
} from './script-cases.ts';
import type { ServerWords } from './script-words.ts';
import { Violation } from './violation.ts';

/**
 * Longer than a script needs with one primary. The guard of a crashed primary lasts as long, and the next one waits.
 */
export const LONG_MS = 2_000;
/** Enough for a reset or a write, and less than a heartbeat. */
const SHORT_MS = 40;
const DISK_MS = 0.2;

/** Holds or drops a message; null: no effect. `message`: null if it is none of a replica. */
export type Rule = (from: ServerId, to: ServerId, message: ReplicaMessage | null) => 'hold' | 'drop' | null;

/** A request, with its answer once there is one. */
export interface Handle {
  answer: Answer | null;
}

/** A group under the control of a script. */
export class Script {
  readonly group: ReplicaGroup;
  /** Servers that no message reaches or leaves. */
  readonly isolated = new Set<ServerId>();
  /** The first rule that returns a verdict decides. */
  rules: Rule[] = [];
  /** The last request of each kind. */
  readonly handles = new Map<string, Handle>();
  #session = 0;
  readonly #asked = new Set<string>();

  constructor(options: Partial<GroupOptions>) {
    this.group = new ReplicaGroup({ seed: 1, servers: 3, leases: 'scripted', ...options });
    this.group.world.intercept = ({ from, to, message }) => {
      if (this.isolated.has(from) || this.isolated.has(to)) return 'drop';
      const ofReplica = message.kind === 'replica' ? message.frame.message : null;
      for (const rule of this.rules) {
        const verdict = rule(from, to, ofReplica);
        if (verdict !== null) return verdict;
      }
      return 'pass';
    };
  }

  run(durationMs = SHORT_MS): void {
    this.group.world.runFor(durationMs);
  }

  /** Gives leases until the server is the primary. */
  lead(server: ServerId, durationMs = LONG_MS): void {
    const { world } = this.group;
    const untilMs = world.nowMs + 2 * LONG_MS;
    while (world.nowMs < untilMs && this.role(server) !== 'active') {
      this.group.grant(server, durationMs);
      world.runFor(durationMs / 2, () => this.role(server) === 'active');
    }
    this.run(5);
    this.expect(this.role(server) === 'active', `${server} becomes primary`);
  }

  role(server: ServerId): string | undefined {
    return this.group.server(server).replica?.status(0).role;
  }

  /** Sends a change of a session; a further call repeats it. A refusal of the first attempt is final. */
  change(id: ServerId, session: number, write: Write): Handle {
    const request = `${session}.1`;
    const isFirst = !this.#asked.has(request);
    this.#asked.add(request);
    return this.ask('change', id, (server, reply) => {
      server.change({ session, number: 1, since: 0 }, request, write, (answer) => {
        if (answer.kind === 'refused' && isFirst) this.group.observer.refused(request);
        reply(answer);
      });
    });
  }

  /** Sends a change of a session of its own, and waits for it to commit. */
  write(server: ServerId, write: Write): Handle {
    const handle = this.change(server, ++this.#session, write);
    this.run();
    return handle;
  }

  /** @returns the value that a client of the server reads; null without an answer */
  shown(id: ServerId, key = '0'): string | null {
    const { group } = this;
    const handle = this.ask('read', id, (server, reply) => server.reads.read(key, reply));
    group.world.runFor(SHORT_MS);
    return handle.answer?.kind === 'value' ? handle.answer.value : null;
  }

  move(id: ServerId, members: readonly ServerId[]): Handle {
    return this.ask('move', id, (server, reply) => server.move(members, reply));
  }

  ask(kind: string, id: ServerId, ask: (server: ReplicaServer, reply: Reply) => void): Handle {
    const handle: Handle = { answer: null };
    this.handles.set(kind, handle).set(`${kind}:${id}`, handle);
    this.group.world.call(id, () => {
      ask(this.group.server(id), (answer) => {
        handle.answer = answer;
      });
    });
    return handle;
  }

  open(...servers: readonly ServerId[]): void {
    for (const server of servers) this.group.world.call(server, () => this.group.server(server).open());
  }

  /** Fails unless a precondition of the script holds; a planted bug may also show here. */
  expect(holds: boolean, claim: string): void {
    if (!holds) throw new Violation(`Expected: ${claim}`);
  }
}

/** @returns a run that reports the first violation, or null */
export function directed(
  options: Partial<GroupOptions>,
  script: (script: Script) => void,
): () => string | null {
  return () => {
    try {
      script(new Script(options));
      return null;
    } catch (error) {
      if (error instanceof Error) return error.message;
      throw error;
    }
  };
}

// The language -----------------------------------------------------------------------------------

type Step = CaseStep<Script>;

/** A value is a letter, eight times, of key 0 or another one. */
function writeParse(words: ServerWords): Write {
  const [letter = '', key = '0'] = words.next('a value').split('@');
  return { key, value: letter.repeat(8) };
}

const OPTIONS: Statements<Partial<GroupOptions>> = {
  servers: (words) => ({ servers: words.natural('the number of servers', 1, SERVERS_MAX) }),
  replicas: (words) => ({ replicas: words.natural('the number of replicas', 1, SERVERS_MAX) }),
  begins: (words) => ({ begins: words.oneOf('how the file begins', ['made', 'created']) }),
  resumes: () => ({ resumes: true }),
  agrees: () => ({ agrees: true }),
  lease: (words) => ({ leaseMs: words.durationMs('the length of a lease') }),
  'read-lease': (words) => ({ readLeaseMs: words.durationMs('the length of a read lease') }),
  'start-guard': (words) => ({ startGuardMs: words.durationMs('the guard after a start') }),
};

/** Parses `drop a->bc write ack`, or the same with `once`. */
function ruleParse(words: ServerWords, verdict: 'hold' | 'drop'): Step {
  const isOnce = words.skip('once');
  const { from, to } = words.link();
  const kinds: string[] = [];
  while (!words.isOver()) kinds.push(words.next('a kind of message'));
  return ({ rules }) => {
    let left = isOnce ? 1 : Infinity;
    rules.push((sender, receiver, message) => {
      const isMeant = kinds.length === 0 || kinds.includes(message?.kind ?? 'other');
      return isMeant && from.includes(sender) && to.includes(receiver) && left-- > 0 ? verdict : null;
    });
  };
}

/** A statement about several servers, one after the other. */
const each =
  (act: (script: Script, server: ServerId) => void) =>
  (words: ServerWords): Step => {
    const servers = words.group();
    return (script) => {
      for (const server of servers) act(script, server);
    };
  };

/** Demands that a server, or a named thing, has a property, or not. */
const demand =
  (of: (script: Script, name: string) => unknown) =>
  (words: ServerWords): Step => {
    const name = words.next('of what');
    const isNegated = words.skip('not');
    const wanted = words.next('what it is');
    return (script) => {
      const found = of(script, name) ?? 'nothing';
      const isThat = wanted === 'something' ? found !== 'nothing' : String(found) === wanted;
      script.expect(isThat !== isNegated, `${words.place}: it is ${found}`);
    };
  };

const handled = (kind: string, ask: (server: ReplicaServer, reply: Reply) => void) =>
  each((script, server) => void script.ask(kind, server, ask));

const STATEMENTS: Statements<Step> = {
  'two-leases': () => (script) => {
    script.group.leasesExclude = false;
  },
  lead(words) {
    const server = words.server();
    const forMs = words.skip('for') ? words.durationMs('how long') : LONG_MS;
    return (script) => script.lead(server, forMs);
  },
  grant(words) {
    const server = words.server();
    const forMs = words.durationMs('how long');
    const view = words.skip('view') ? words.natural('the number of the view') : undefined;
    return (script) => script.group.grant(server, forMs, view);
  },
  revoke: each(({ group }, server) => group.revoke(server)),
  isolate: each(({ isolated }, server) => void isolated.add(server)),
  rejoin:
    () =>
    ({ isolated }) =>
      isolated.clear(),
  drop: (words) => ruleParse(words, 'drop'),
  hold: (words) => ruleParse(words, 'hold'),
  part(words) {
    const side = words.group();
    return ({ rules }) =>
      void rules.push((from, to) => (side.includes(from) === side.includes(to) ? null : 'drop'));
  },
  pass: () => (script) => {
    script.rules = [];
  },
  deliver(words) {
    const count = words.isOver() ? null : words.natural('how many');
    return (script) => {
      const delivered = script.group.world.deliver();
      script.expect(
        count === null ? delivered > 0 : delivered === count,
        `${words.place}: it delivers ${delivered}`,
      );
    };
  },
  write(words) {
    const [server, write] = [words.server(), writeParse(words)];
    return (script) => void script.write(server, write);
  },
  commit(words) {
    const [server, write] = [words.server(), writeParse(words)];
    return (script) =>
      script.expect(script.write(server, write).answer?.kind === 'done', `${words.place}: it commits`);
  },
  change(words) {
    const [server, session, write] = [words.server(), words.natural('a session'), writeParse(words)];
    return (script) => void script.change(server, session, write);
  },
  ask: handled('ask', (server, reply) => server.reads.read('0', reply)),
  flush: handled('flush', (server, reply) => server.flush(reply)),
  move(words) {
    const [server, members] = [words.server(), words.group()];
    return (script) => void script.move(server, members);
  },
  answer: demand(({ handles }, kind) => {
    const answer = handles.get(kind)?.answer;
    return answer?.kind === 'value' ? answer.value[0] : answer?.kind;
  }),
  position: demand(({ handles }, kind) => {
    const answer = handles.get(kind)?.answer;
    return answer?.kind === 'done' ? answer.seq : null;
  }),
  read: each((script, server) => void script.shown(server)),
  shown: demand((script, server) => {
    const value = script.shown(server as ServerId);
    return value === '' ? 'empty' : value?.[0];
  }),
  create(words) {
    const write = writeParse(words);
    const session = words.isOver() ? 70 : words.natural('a session');
    return ({ group }) => {
      const { world, creator } = group;
      if (!world.isUp(creator)) return;
      world.call(creator, () => group.server(creator).creations.create(`${session}.1`, write));
    };
  },
  run(words) {
    const forMs = words.isOver() ? SHORT_MS : words.durationMs('how long');
    return (script) => script.run(forMs);
  },
  crash: each(({ group }, server) => group.world.crash(server)),
  start: each(({ group }, server) => group.world.restart(server)),
  restart: each(({ group }, server) => {
    group.world.crash(server);
    group.world.restart(server);
  }),
  pause(words) {
    const [server, forMs] = [words.server(), words.durationMs('how long')];
    return ({ group }) => group.world.pause(server, forMs);
  },
  open: each((script, server) => script.open(server)),
  stop: each(({ group }, server) => group.world.call(server, () => group.server(server).stop())),
  'lose-power'(words) {
    const servers = words.group();
    return ({ group }) => group.faults.losePower(servers, () => 0, true);
  },
  wipe: each(({ group }, server) => group.faults.wipe(server, 0)),
  disk(words) {
    const [slow, slowMs] = [words.server(), words.durationMs('how long')];
    const slowKind = words.isOver() ? null : words.next('a kind of step');
    return ({ group }) => {
      group.diskDelayMs = (server, kind) =>
        server === slow && (slowKind ?? kind) === kind ? slowMs : DISK_MS;
    };
  },
  role: demand((script, server) => script.role(server as ServerId)),
  serves: demand(({ group }, server) => (group.server(server as ServerId).reads.mayServe ? 'yes' : 'no')),
  guarded: demand(({ group }, server) => {
    const id = server as ServerId;
    return (group.server(id).replica?.servesForMs(group.processMs(id)) ?? 0) > 0 ? 'yes' : 'no';
  }),
  epoch: demand(({ group }, server) => group.server(server as ServerId).replica?.epoch.counter),
  inherits: demand(({ group }, server) => group.server(server as ServerId).replica?.inheritedFrom?.counter),
  trust: demand(({ group }, server) => group.disks.get(server as ServerId)?.trust),
  count: demand(({ group }, name) => ({ ...group.counts, ...group.observer.counts })[name as 'created']),
  members: demand(({ group }, server) => {
    const { joint, members } = group.observer.view;
    return joint !== undefined ? 'changing' : members.includes(server as ServerId) ? 'yes' : 'no';
  }),
};

/** Scripts about the order of operations, the right to answer reads, disks and changes of members. */
export const REPLICA_SCRIPTS: Cases = Object.assign(
  {},
  ...['order', 'reads', 'disks'].map((name) =>
    casesRead(`replica/${name}.txt`, OPTIONS, STATEMENTS, directed),
  ),
);
