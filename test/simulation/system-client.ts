/** A client of the system simulation: one operation at a time, tried again under the same name wherever there is a server. */
import type { ServerId } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import { viewVoters } from '../../replica/view.ts';
import { requestKey, type Wish } from './system-contents.ts';
import type { Answer, Reply } from './system-messages.ts';
import type { SystemWorld } from './system-world.ts';

/** A client gives up a request after so long; then it stays open in the history. */
const PATIENCE_MS = 4_000;

/** Draws what clients want. */
export interface Habits {
  wish(dice: Prng, session: number, number: number): Wish;
  what(dice: Prng): string;
}

export class Client {
  readonly #system: SystemWorld;
  readonly #habits: Habits;
  readonly #prng: Prng;
  /** How many of its operations are reads. */
  readonly #reads: number;
  #session: number;
  #number = 0;
  /** The latest operation; answers to older ones are too late. */
  #current = 0;
  #knownPrimary: ServerId | null = null;
  /** Some say what they need no answer to any more, others never do. */
  readonly #tellsAnswered: boolean;
  #ended = false;

  constructor(system: SystemWorld, habits: Habits, index: number) {
    this.#system = system;
    this.#habits = habits;
    this.#prng = new Prng(system.options.seed * 101 + index);
    this.#session = index * 1000;
    this.#tellsAnswered = index % 3 !== 0;
    this.#reads = index % 2 === 0 ? 0.75 : 0.35;
  }

  begin(): void {
    this.#later(this.#prng.next() * 200, () => this.#next());
  }

  /** No new operations; the one under way may still finish. */
  end(): void {
    this.#ended = true;
  }

  #next(): void {
    if (this.#ended) return;
    const again = () => this.#later(this.#prng.next() * 50, () => this.#next());
    const draw = this.#prng.next();
    if (draw < this.#reads) this.look(this.#habits.what(this.#prng), again);
    else if (draw < this.#reads + 0.03) this.#flush(again);
    else this.wish(this.#habits.wish(this.#prng, this.#session, this.#number + 1), again);
  }

  wish(wish: Wish, done: () => void): void {
    const { observers, counts } = this.#system;
    const before = this.#number++;
    const answered = this.#tellsAnswered && before > 0 ? { answered: before } : {};
    const request = { session: this.#session, number: this.#number, since: 0, ...answered };
    const key = requestKey(request, wish);
    observers.called(key, wish);
    let unknown = false;
    this.#attempt(
      () => this.#knownPrimary ?? this.#anyServer(),
      (server, reply) => this.#system.process(server).change(request, wish, reply),
      (answer, attempts) => {
        if (answer.kind === 'done') {
          if (unknown) counts.unknownRetried++;
          observers.answered(key, answer.answer, answer.seq, answer.segment);
          done();
          return true;
        }
        if (answer.kind === 'unknown') unknown = true;
        // Whatever came of the attempts before: this one says that none of them did it, nor will.
        if (answer.kind === 'sealed') {
          this.#system.troubles.seal.sealedRefusals++;
          observers.refusedForEver(key, answer.segment);
          done();
          return true;
        }
        // Some clients take a definite no for an answer. Then it must stay a no.
        if (answer.kind === 'refused' && attempts === 1 && this.#prng.chance(0.3)) {
          observers.refused(key);
          done();
          return true;
        }
        return false;
      },
      () => {
        // Out of patience: a new session, as after a restart of the client.
        this.#session++;
        this.#number = 0;
        done();
      },
    );
  }

  /** @param at the only server that is asked; absent: any */
  look(what: string, done: () => void, at?: ServerId): void {
    const { world, observers } = this.#system;
    const callMs = world.nowMs;
    // A client stays with the server that is near, unless that sends it away.
    let near: ServerId | null = at ?? (this.#prng.chance(0.8) ? this.#anyServer() : null);
    this.#attempt(
      () => {
        const server = near ?? this.#knownPrimary ?? this.#anyServer();
        near = at ?? null;
        return server;
      },
      (server, reply) => this.#system.process(server).reads.read(what, reply),
      (answer) => {
        if (answer.kind === 'integrity' && this.#system.troubles.isLost(what)) {
          this.#system.troubles.rot.lostReads++;
          done();
          return true;
        }
        if (answer.kind !== 'value') return false;
        observers.looked(what, answer.value, callMs, answer);
        done();
        return true;
      },
      done,
    );
  }

  /** The replicas are to be at these servers. @param done told whether they came to be there */
  move(members: readonly ServerId[], done: (moved: boolean) => void): void {
    this.#attempt(
      () => this.#knownPrimary ?? this.#anyServer(),
      (server, reply) => this.#system.process(server).move(members, reply),
      (answer) => {
        if (answer.kind !== 'moved') return false;
        done(true);
        return true;
      },
      () => done(false),
    );
  }

  /** @param done told whether the file is sealed for ever */
  seal(done: (sealed: boolean) => void): void {
    this.#attempt(
      () => this.#knownPrimary ?? this.#anyServer(),
      (server, reply) => this.#system.process(server).seal(reply),
      (answer) => {
        if (answer.kind !== 'sealed') return false;
        done(true);
        return true;
      },
      () => done(false),
    );
  }

  #flush(done: () => void): void {
    this.#attempt(
      () => this.#knownPrimary ?? this.#anyServer(),
      (server, reply) => this.#system.process(server).flushAll(reply),
      (answer) => {
        if (answer.kind !== 'flushed') return false;
        done();
        return true;
      },
      done,
    );
  }

  /** Mostly one that has a replica, as the catalog tells. */
  #anyServer(): ServerId {
    const { world, catalogView, observers } = this.#system;
    const view = this.#prng.chance(0.5) ? catalogView : observers.view;
    return this.#prng.chance(0.97) ? this.#prng.pick(viewVoters(view)) : this.#prng.pick(world.ids);
  }

  /**
   * Asks one server after the other until `accept` takes an answer or patience is over. Requests and
   * answers take time and get lost; nothing that comes later than the decision counts.
   */
  #attempt(
    whom: () => ServerId,
    ask: (server: ServerId, reply: Reply) => void,
    accept: (answer: Answer, attempts: number) => boolean,
    giveUp: () => void,
  ): void {
    const { world } = this.#system;
    const { loss } = world.faults;
    const operation = ++this.#current;
    const untilMs = world.nowMs + PATIENCE_MS;
    let attempts = 0;
    const attempt = () => {
      if (operation !== this.#current) return;
      if (world.nowMs > untilMs && !this.#ended) {
        this.#current++;
        giveUp();
        return;
      }
      const number = ++attempts;
      const server = whom();
      this.#knownPrimary = null;
      const again = (delayMs: number) =>
        this.#later(delayMs, () => {
          if (attempts === number) attempt();
        });
      // The answer may never come.
      again(150 + this.#prng.next() * 150);
      if (this.#prng.chance(loss)) return;
      this.#later(this.#delayMs(), () => {
        world.call(server, () => {
          ask(server, (answer) => {
            if (this.#prng.chance(loss)) return;
            this.#later(this.#delayMs(), () => {
              if (operation !== this.#current) return;
              if (accept(answer, attempts)) {
                this.#current++;
                if (answer.kind !== 'value' || answer.role === 'primary') this.#knownPrimary = server;
                return;
              }
              if (answer.kind === 'refused') this.#knownPrimary = answer.hint;
              again(this.#prng.next() * 40);
            });
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
    this.#system.world.at(this.#system.world.nowMs + delayMs, run);
  }
}
