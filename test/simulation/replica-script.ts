/** Directed runs of a replica group: what a script can do, and the names that scripts use. */
import type { ServerId } from '../../base/ids.ts';
import type { ReplicaMessage } from '../../replica/messages.ts';
import type { Write } from './replica-disk.ts';
import { type GroupOptions, ReplicaGroup } from './replica-group.ts';
import type { Answer, Reply } from './replica-messages.ts';
import type { ReplicaServer } from './replica-server.ts';
import { Violation } from './violation.ts';

export const A = 'a' as ServerId;
export const B = 'b' as ServerId;
export const C = 'c' as ServerId;
export const D = 'd' as ServerId;
export const E = 'e' as ServerId;

/** Longer than what a script does with one primary. A guard of a dead primary lasts as long, and the next one waits. */
export const LONG_MS = 2_000;
/** Enough for a reset or a write, and less than a heartbeat. */
export const SHORT_MS = 40;
/** Enough for several heartbeats. */
export const HEARTBEATS_MS = 350;

export const X: Write = { key: '0', value: 'xxxxxxxx' };
export const Y: Write = { key: '0', value: 'yyyyyyyy' };
export const Z: Write = { key: '0', value: 'zzzzzzzz' };

/** Where the answer to a request will be. */
export interface Handle {
  answer: Answer | null;
}

/** What happens to one message; null for nothing special. `message`: null where it is none of a replica. */
export type Rule = (from: ServerId, to: ServerId, message: ReplicaMessage | null) => 'hold' | 'drop' | null;

export class Script {
  readonly group: ReplicaGroup;
  /** Servers that no message reaches or leaves. */
  readonly isolated = new Set<ServerId>();
  rule: Rule = () => null;
  #session = 0;
  readonly #asked = new Set<string>();

  constructor(options: Partial<GroupOptions>) {
    this.group = new ReplicaGroup({ seed: 1, servers: 3, leases: 'scripted', ...options });
    this.group.world.intercept = ({ from, to, message }) => {
      if (this.isolated.has(from) || this.isolated.has(to)) return 'drop';
      return this.rule(from, to, message.kind === 'replica' ? message.frame.message : null) ?? 'pass';
    };
  }

  run(durationMs = SHORT_MS): void {
    this.group.world.runFor(durationMs);
  }

  /** Gives a lease, again if necessary, and waits until its holder is the primary. */
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

  /** For how long a majority still keeps the primary's guard. */
  guardMs(server: ServerId): number {
    return this.group.server(server).replica?.servesForMs(this.group.processMs(server)) ?? 0;
  }

  mayServe(server: ServerId): boolean {
    return this.group.server(server).reads.mayServe;
  }

  /** A change by a session, which repeats it if it is called again. A refusal of the first attempt is final. */
  change(id: ServerId, session: number, write: Write): Handle {
    const request = `${session}.1`;
    const isFirst = !this.#asked.has(request);
    this.#asked.add(request);
    return this.#ask(id, (server, reply) => {
      server.change({ session, number: 1, since: 0 }, request, write, (answer) => {
        if (answer.kind === 'refused' && isFirst) this.group.observer.refused(request);
        reply(answer);
      });
    });
  }

  /** A change by a session of its own, and time for it to commit. */
  write(server: ServerId, write: Write): Handle {
    const handle = this.change(server, ++this.#session, write);
    this.run();
    return handle;
  }

  /** As `write`; it commits. */
  commit(server: ServerId, write: Write): void {
    this.expect(this.write(server, write).answer?.kind === 'done', `${server} commits ${write.value}`);
  }

  /** A read, without time for it. */
  ask(id: ServerId, key = '0'): Handle {
    return this.#ask(id, (server, reply) => server.reads.read(key, reply));
  }

  read(server: ServerId, key = '0'): Handle {
    const handle = this.ask(server, key);
    this.run();
    return handle;
  }

  /** What clients of the server read; null where they get no answer. */
  shown(server: ServerId, key = '0'): string | null {
    const { answer } = this.read(server, key);
    return answer?.kind === 'value' ? answer.value : null;
  }

  flush(id: ServerId): Handle {
    return this.#ask(id, (server, reply) => server.flush(reply));
  }

  move(id: ServerId, members: readonly ServerId[]): Handle {
    return this.#ask(id, (server, reply) => server.move(members, reply));
  }

  #ask(id: ServerId, ask: (server: ReplicaServer, reply: Reply) => void): Handle {
    const handle: Handle = { answer: null };
    this.group.world.call(id, () => {
      ask(this.group.server(id), (answer) => {
        handle.answer = answer;
      });
    });
    return handle;
  }

  /** The creator gets the contents of the file, as often as this is called. */
  create(write: Write, session = 70): void {
    const { world, creator } = this.group;
    if (world.isUp(creator))
      world.call(creator, () => this.group.server(creator).creations.create(`${session}.1`, write));
  }

  stop(server: ServerId): void {
    this.group.world.call(server, () => this.group.server(server).stop());
  }

  open(...servers: readonly ServerId[]): void {
    for (const server of servers) this.group.world.call(server, () => this.group.server(server).open());
  }

  crash(...servers: readonly ServerId[]): void {
    for (const server of servers) this.group.world.crash(server);
  }

  start(server: ServerId): void {
    this.group.world.restart(server);
  }

  restart(server: ServerId): void {
    this.crash(server);
    this.start(server);
  }

  /** All that was not synced is lost, and the servers start at once. */
  losePower(...servers: readonly ServerId[]): void {
    this.group.faults.losePower(servers, () => 0, true);
  }

  /** Nothing passes between the two. */
  between(a: ServerId, b: ServerId): Rule {
    return (from, to) => ((from === a && to === b) || (from === b && to === a) ? 'drop' : null);
  }

  /** @returns how many messages were held back */
  deliver(): number {
    return this.group.world.deliver();
  }

  /** What the script relies on; a planted bug may also show here. */
  expect(holds: boolean, claim: string): void {
    if (!holds) throw new Violation(`Expected: ${claim}`);
  }
}

export type Cases = Readonly<Record<string, () => string | null>>;

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
