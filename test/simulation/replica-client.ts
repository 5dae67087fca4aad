/** A client of a replica group: one operation at a time, repeated as one request at one server after the other. */
import type { ServerId } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import { viewVoters } from '../../replica/view.ts';
import type { ReplicaGroup } from './replica-group.ts';
import type { Answer, Reply } from './replica-messages.ts';
import type { ReplicaServer } from './replica-server.ts';

/** After this time a client abandons a request; its outcome stays unknown. */
const PATIENCE_MS = 4_000;
const REGISTERS = 3;

export class ReplicaClient {
  readonly #group: ReplicaGroup;
  readonly #prng: Prng;
  /** The share of reads in its operations, from 0 to 1. */
  readonly #reads: number;
  /** Some clients confirm received answers. */
  readonly #namesAnswered: boolean;
  #session: number;
  #number = 0;
  /** The latest operation; answers to earlier ones are late. */
  #current = 0;
  #knownPrimary: ServerId | null = null;
  #isEnding = false;

  constructor(group: ReplicaGroup, index: number) {
    this.#group = group;
    this.#prng = new Prng(group.options.seed * 101 + index);
    this.#session = index * 1000;
    this.#namesAnswered = index % 3 !== 0;
    this.#reads = index % 2 === 0 ? 0.75 : 0.35;
  }

  begin(): void {
    this.#later(this.#prng.next() * 200, () => this.#next());
  }

  /** Begins no further operations; the pending one may still end. */
  end(): void {
    this.#isEnding = true;
  }

  #next(): void {
    if (this.#isEnding) return;
    const again = () => this.#later(this.#prng.next() * 50, () => this.#next());
    const draw = this.#prng.next();
    if (draw < this.#reads) this.read(again);
    else if (draw < this.#reads + 0.03) this.#flush(again);
    else this.write(again);
  }

  write(done: () => void): void {
    const { observer, counts } = this.#group;
    const before = this.#number++;
    const answered = this.#namesAnswered && before > 0 ? { answered: before } : {};
    const id = { session: this.#session, number: this.#number, since: 0, ...answered };
    const request = `${id.session}.${id.number}`;
    const write = { key: String(this.#prng.integer(0, REGISTERS - 1)), value: request };
    let wasUnknown = false;
    this.#attempt(
      () => this.#knownPrimary ?? this.#anyServer(),
      (server, reply) => server.change(id, request, write, reply),
      (answer, attempts) => {
        if (answer.kind === 'unknown') wasUnknown = true;
        // Some clients take a refusal as final. Then the change must never happen.
        const isRefused = answer.kind === 'refused' && attempts === 1 && this.#prng.chance(0.3);
        if (isRefused) observer.refused(request);
        if (answer.kind !== 'done' && !isRefused) return false;
        if (wasUnknown) counts.unknownRetried++;
        done();
        return true;
      },
      () => {
        // As after a restart of the client.
        this.#session++;
        this.#number = 0;
        done();
      },
    );
  }

  read(done: () => void): void {
    const key = String(this.#prng.integer(0, REGISTERS - 1));
    // A client prefers a nearby server until that refuses.
    let near: ServerId | null = this.#prng.chance(0.8) ? this.#anyServer() : null;
    this.#attempt(
      () => {
        const server = near ?? this.#knownPrimary ?? this.#anyServer();
        near = null;
        return server;
      },
      (server, reply) => server.reads.read(key, reply),
      ({ kind }) => {
        if (kind === 'value') done();
        return kind === 'value';
      },
      done,
    );
  }

  /** @param done called with whether the members are these servers now */
  move(members: readonly ServerId[], done: (moved: boolean) => void): void {
    this.#attempt(
      () => this.#knownPrimary ?? this.#anyServer(),
      (server, reply) => server.move(members, reply),
      ({ kind }) => {
        if (kind === 'moved') done(true);
        return kind === 'moved';
      },
      () => done(false),
    );
  }

  #flush(done: () => void): void {
    this.#attempt(
      () => this.#knownPrimary ?? this.#anyServer(),
      (server, reply) => server.reads.flush(reply),
      ({ kind }) => {
        if (kind === 'flushed') done();
        return kind === 'flushed';
      },
      done,
    );
  }

  /** Mostly a server that has a replica according to the catalog. */
  #anyServer(): ServerId {
    const { world, catalogView, observer } = this.#group;
    const view = this.#prng.chance(0.5) ? catalogView : observer.view;
    return this.#prng.chance(0.97) ? this.#prng.pick(viewVoters(view)) : this.#prng.pick(world.ids);
  }

  /**
   * Asks one server after the other until `accept` takes an answer or the time is over. Requests and answers take time
   * and may be lost; answers after the decision do not count.
   */
  #attempt(
    choose: () => ServerId,
    ask: (server: ReplicaServer, reply: Reply) => void,
    accept: (answer: Answer, attempts: number) => boolean,
    impatient: () => void,
  ): void {
    const { world } = this.#group;
    const { loss } = world.faults;
    const operation = ++this.#current;
    const untilMs = world.nowMs + PATIENCE_MS;
    let attempts = 0;
    const attempt = () => {
      if (operation !== this.#current) return;
      if (world.nowMs > untilMs && !this.#isEnding) {
        this.#current++;
        impatient();
        return;
      }
      const number = ++attempts;
      const id = choose();
      this.#knownPrimary = null;
      const again = (delayMs: number) =>
        this.#later(delayMs, () => {
          if (attempts === number) attempt();
        });
      // The answer may be lost.
      again(150 + this.#prng.next() * 150);
      if (this.#prng.chance(loss)) return;
      const answered = (answer: Answer) => {
        if (operation !== this.#current) return;
        if (accept(answer, attempts)) {
          this.#current++;
          if (answer.kind !== 'value') this.#knownPrimary = id;
          return;
        }
        if (answer.kind === 'refused') this.#knownPrimary = answer.hint;
        again(this.#prng.next() * 40);
      };
      this.#later(this.#delayMs(), () => {
        world.call(id, () => {
          ask(this.#group.server(id), (answer) => {
            if (!this.#prng.chance(loss)) this.#later(this.#delayMs(), () => answered(answer));
          });
        });
      });
    };
    attempt();
  }

  #delayMs(): number {
    return 0.5 + this.#prng.next() * 3;
  }

  #later(delayMs: number, run: () => void): void {
    this.#group.world.at(this.#group.world.nowMs + delayMs, run);
  }
}
