import { setImmediate as turn } from 'node:timers/promises';
import type { ServerId } from '../../base/ids.ts';
import { CacheSession } from '../../client/cache-session.ts';
import { Delegated } from '../../client/delegated.ts';
import { Memory, type OwnChange, type OwnOutcome } from '../../client/memory.ts';
import { outcomeOfCommand } from '../../client/own-outcome.ts';
import { type CatalogServiceParts, LocalCatalogService } from '../../server/catalog/catalog-service.ts';
import { Recaller } from '../../server/catalog/recaller.ts';
import type { Clock } from '../../server/clock.ts';
import type {
  Attributes,
  CacheAnswer,
  CacheRequest,
  Command,
  CommandRequest,
  Query,
} from '../../wire/catalog-api.ts';
import { systemWorld } from '../../world/system-world.ts';

/** How long the world's primary lets clients believe at the most. */
export const LEASE_MS = 1_000;
const GUARD_MS = 700;
const NAME = 'name';
const INODES = 6;
/** What the name stands for where it is there. */
const NAMED = 7;
const MESSAGE_MS_MAX = 30;
/** So long a client waits for a command that is stalled on its way. */
const PATIENCE_MS = 50;

/** Numbers that look random and are the same for the same seed. */
export class Dice {
  #state: number;

  constructor(seed: number) {
    this.#state = (seed * 2_654_435_761) >>> 0;
  }

  below(limit: number): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let word = this.#state;
    word = Math.imul(word ^ (word >>> 15), word | 1);
    word ^= word + Math.imul(word ^ (word >>> 7), word | 61);
    return ((word ^ (word >>> 14)) >>> 0) % limit;
  }

  chance(percent: number): boolean {
    return this.below(100) < percent;
  }
}

interface Timers {
  tick(ms: number): void;
}

/**
 * Clients that remember, one catalog after the other, and messages that are late or lost, in a time that the test
 * makes pass. Whatever a client believes is compared, at the moment when it believes it, with what is committed.
 */
export class CacheWorld {
  readonly dice: Dice;
  readonly #timers: Timers;
  readonly clients: WorldClient[] = [];
  nowMs = 0;
  /** What is committed: a version of each inode, and of the name in it. */
  readonly versions = new Map<number, number>();
  readonly names = new Map<number, boolean>();
  /** Who has committed a change of each inode, in order. */
  readonly writers = new Map<number, number[]>();
  primary: WorldPrimary | null;
  /** The first thing that a client believed and that was not so. */
  violation: string | null = null;
  believed = 0;
  /** Delegations that a client came to have, and how often one was looked at while it was relied on. */
  delegated = 0;
  trusted = 0;
  committed = 0;
  /** Numbers of commands for which their clients wait no more. */
  readonly givenUp = new Set<number>();
  /** How many of those were executed afterwards. */
  late = 0;
  /** How often a client knew a directory, or the name in it, after a change of its own. */
  kept = 0;
  slowestMs = 0;
  #random = 1;

  constructor(seed: number, clients: number, timers: Timers) {
    this.dice = new Dice(seed);
    this.#timers = timers;
    for (let inode = 1; inode <= INODES; inode++) this.versions.set(inode, 0);
    this.primary = new WorldPrimary(this);
    for (let place = 0; place < clients; place++) this.clients.push(new WorldClient(this, place));
  }

  draw(): number {
    return ++this.#random;
  }

  anyInode(): number {
    return 1 + this.dice.below(INODES);
  }

  /** A millisecond passes, and all that follows from it happens. */
  async pass(): Promise<void> {
    this.nowMs++;
    this.#timers.tick(1);
    await turn();
  }

  delay(ms: number): Promise<void> {
    return new Promise((resolve) => setTimeout(resolve, ms));
  }

  /** A message is under way; some are lost. */
  async travel(): Promise<void> {
    await this.delay(1 + this.dice.below(MESSAGE_MS_MAX));
    if (this.dice.chance(3)) {
      await this.delay(100);
      throw new Error('lost');
    }
  }

  attributes(inode: number): Attributes {
    return {
      inode,
      live: false,
      kind: 'directory',
      changedNs: String(this.versions.get(inode)),
    } as Attributes;
  }

  writersOf(inode: number): number[] {
    let writers = this.writers.get(inode);
    if (writers === undefined) {
      writers = [];
      this.writers.set(inode, writers);
    }
    return writers;
  }

  /** The primary is gone at once. Another one comes when the right of this one is certainly over. */
  async failover(): Promise<void> {
    const { primary } = this;
    if (primary === null) return;
    primary.leads = false;
    this.primary = null;
    while (this.nowMs < primary.rightUntilMs) await this.delay(5);
    this.primary = new WorldPrimary(this);
  }
}

class WorldPrimary {
  readonly service: LocalCatalogService;
  leads = true;
  rightUntilMs: number;
  readonly #world: CacheWorld;
  #staged: (() => void)[] = [];
  /** The time of the batch that is executed: no two have the same. */
  #batchNs = 0;

  constructor(world: CacheWorld) {
    this.#world = world;
    this.rightUntilMs = world.nowMs + GUARD_MS;
    const self = 'a' as ServerId;
    const view = { number: 1, members: [self] };
    const primary = this;
    const driver = {
      get leads() {
        return primary.leads;
      },
      epoch: 1,
      orderedSeq: 0,
      status: () => ({ seq: 0, view }),
      onRole: () => () => undefined,
      committed: () => (primary.leads ? Promise.resolve() : Promise.reject(new Error('no primary'))),
      servesForMs: () => Math.max(0, this.rightUntilMs - world.nowMs),
      noteBelief: () => undefined,
      submit: async () => {
        await world.delay(1 + world.dice.below(10));
        if (!this.leads) throw new Error('no primary');
        for (const commit of this.#staged.splice(0)) commit();
      },
    };
    this.service = new LocalCatalogService({
      settle: () => Promise.resolve(),
      self,
      world: systemWorld,
      clock: { nowMs: () => world.nowMs, wallNs: () => BigInt(this.#nextNs()) } as unknown as Clock,
      operationTimeoutMs: 60_000,
      placement: () => [],
      isConnected: () => true,
      commandsVersion: () => null,
      lease: { view: () => ({ own: this.leads, holder: null }) },
      driver,
      recaller: new Recaller({
        driver,
        options: { leaseMsMax: LEASE_MS, sessionGrantsMax: 4, grantsMax: 100, draw: () => world.draw() },
        world: { ...systemWorld, nowMs: () => world.nowMs },
      }),
      subject: {
        ready: () => Promise.resolve(),
        record: () => ({ view }),
        execute: (requests: readonly CommandRequest[]) => this.#execute(requests),
        query: (query: Query) => this.#query(query),
        prepare: () => undefined,
        abandon: () => {
          this.#staged = [];
        },
      },
    } as unknown as CatalogServiceParts);
    void this.#renew();
  }

  async #renew(): Promise<void> {
    while (this.leads) {
      this.rightUntilMs = this.#world.nowMs + GUARD_MS;
      await this.#world.delay(200);
    }
  }

  #nextNs(): number {
    this.#batchNs = this.#world.draw();
    return this.#batchNs;
  }

  #execute(requests: readonly CommandRequest[]): object {
    const { versions, names } = this.#world;
    const atNs = this.#batchNs;
    this.#staged = [];
    const touched = requests.map(({ command, cache, number }) => {
      const named = 'place' in command && 'parent' in command.place ? command.place.parent : null;
      const inode = named ?? ('inode' in command ? command.inode : 1);
      this.#staged.push(() => {
        versions.set(inode, atNs);
        // To a client that waits no more its own change is one of another.
        const isLate = this.#world.givenUp.has(number);
        if (isLate) this.#world.late++;
        this.#world.writersOf(inode).push(isLate ? 0 : (cache?.client ?? 0));
        if (named !== null) names.set(named, command.kind === 'create-file');
        this.#world.committed++;
      });
      return [inode];
    });
    const result = { attributes: { inode: NAMED }, created: true };
    return { body: new Uint8Array(1), touched, outcomes: requests.map(() => ({ kind: 'done', result })) };
  }

  #query(query: Query): object {
    const inode = 'inode' in query ? query.inode : 'parent' in query ? query.parent : 1;
    return {
      attributes: this.#world.attributes(inode),
      there: this.#world.names.get(inode) ?? false,
      changes: this.#world.writersOf(inode).length,
    };
  }
}

export class WorldClient {
  readonly memory = new Memory();
  readonly session: CacheSession;
  readonly #delegated = new Delegated();
  /** Of what is delegated here: how many changes there were when it was. */
  readonly #changesBefore = new Map<number, number>();
  readonly #world: CacheWorld;
  readonly #number: number;
  /** This client's clock runs so much faster than the world's. */
  readonly #rate: number;
  #frozenUntilMs = 0;
  readonly #waiting: (() => void)[] = [];

  constructor(world: CacheWorld, place: number) {
    this.#world = world;
    this.#number = 1_000 + place;
    this.#rate = 1 + (world.dice.below(19) - 9) / 1_000;
    this.session = new CacheSession({
      client: this.#number,
      poll: (request) => this.#poll(request),
      recalled: async (inodes) => {
        for (const inode of inodes) {
          this.memory.forget(inode);
          this.#delegated.recalled(inode);
        }
        await world.delay(1);
      },
      ended: () => {
        this.memory.forgetAll();
        this.#delegated.endAll();
      },
      world: {
        ...systemWorld,
        nowMs: () => this.#nowMs(),
        sleep: (ms, { signal } = {}) =>
          new Promise((resolve) => {
            setTimeout(resolve, ms);
            signal?.addEventListener('abort', () => resolve());
          }),
      },
      failed: () => undefined,
    });
    this.session.start();
  }

  get frozen(): boolean {
    return this.#world.nowMs < this.#frozenUntilMs;
  }

  /** Nothing happens here for a while, then all that came meanwhile; what it believes is looked at first. */
  async freeze(ms: number): Promise<void> {
    this.#frozenUntilMs = this.#world.nowMs + ms;
    await this.#world.delay(ms);
    for (let inode = 1; inode <= INODES; inode++) this.look(inode);
    for (const go of this.#waiting.splice(0)) go();
  }

  /** What is believed has to be so. */
  look(inode: number): void {
    const world = this.#world;
    if (this.frozen || this.session.leftMs <= 0) return;
    const attributes = this.memory.attributes(inode);
    const there = this.memory.name(inode, NAME);
    if (this.#delegated.has(inode)) {
      world.trusted++;
      const since = world.writersOf(inode).slice(this.#changesBefore.get(inode) ?? 0);
      if (since.some((client) => client !== this.#number)) this.#violated(inode, 'delegation');
    }
    if (attributes !== undefined) {
      world.believed++;
      if (attributes.changedNs !== String(world.versions.get(inode))) this.#violated(inode, 'attributes');
    }
    if (there !== undefined) {
      world.believed++;
      if ((there !== null) !== (world.names.get(inode) ?? false)) this.#violated(inode, 'name');
    }
  }

  async ask(inode: number): Promise<void> {
    const { session } = this.session;
    const { mark } = this.memory;
    const { primary } = this.#world;
    if (session === null || primary === null || this.frozen) return;
    const kind = this.#world.dice.chance(50) ? 'attributes' : 'lookup';
    const query = (kind === 'lookup' ? { kind, parent: inode, name: NAME } : { kind, inode }) as Query;
    try {
      await this.#world.travel();
      const answer = await primary.service.queryRemembered(query, session);
      await this.#world.travel();
      await this.#thawed();
      const { result, granted } = answer as unknown as {
        result: { attributes: Attributes; there: boolean };
        granted: { session: number; refused: number[] } | null;
      };
      if (granted === null || granted.session !== this.session.session || granted.refused.includes(inode))
        return;
      if (kind === 'attributes') this.memory.learn(result.attributes, mark);
      else this.memory.learnName(inode, NAME, result.there ? NAMED : null, mark);
    } catch (error) {
      if (!(error instanceof Error)) throw error;
    }
  }

  /** Comes to be the only one who changes the names of a directory, if it can. */
  async askForDelegation(inode: number): Promise<void> {
    const { session } = this.session;
    const { mark } = this.#delegated;
    const { primary } = this.#world;
    if (session === null || primary === null || this.frozen) return;
    try {
      await this.#world.travel();
      const query = { kind: 'lookup', parent: inode, name: NAME } as Query;
      const {
        result,
        delegated,
        generation = 0,
      } = await primary.service.queryRemembered(query, session, true);
      const { changes } = result as unknown as { changes: number };
      await this.#world.travel();
      await this.#thawed();
      if (delegated === undefined || delegated !== this.session.session) return;
      if (!this.#delegated.learn(inode, generation, mark)) return;
      this.#changesBefore.set(inode, changes);
      this.#world.delegated++;
    } catch (error) {
      if (!(error instanceof Error)) throw error;
    }
  }

  async change(inode: number): Promise<void> {
    const { primary } = this.#world;
    if (primary === null || this.frozen) return;
    const ofName = this.#world.dice.chance(50);
    const change: OwnChange = ofName
      ? { names: [{ parent: inode, name: NAME }], inodes: [] }
      : { names: [], inodes: [inode] };
    const kind = this.#world.dice.chance(50) ? 'unlink' : 'create-file';
    const command = (
      ofName ? { kind, place: { parent: inode, name: NAME } } : { kind: 'set-attributes', inode }
    ) as Command;
    const mark = this.memory.changing(change);
    let outcome: OwnOutcome | null = null;
    const beganMs = this.#world.nowMs;
    const { session } = this.session;
    const under = session === null ? {} : { under: session };
    const cache = { client: this.#number, forgets: [inode], ...under };
    const number = this.#world.draw();
    const isStalled = this.#world.dice.chance(10);
    const execute = async () => {
      await this.#world.delay(1 + this.#world.dice.below(isStalled ? 2 * LEASE_MS : MESSAGE_MS_MAX));
      const result = await primary.service.execute({ session: 1, number, command, cache });
      if (!isStalled) this.#world.slowestMs = Math.max(this.#world.slowestMs, this.#world.nowMs - beganMs);
      await this.#world.delay(1 + this.#world.dice.below(MESSAGE_MS_MAX));
      return result;
    };
    try {
      const executed = execute();
      executed.catch(() => undefined);
      const result = await (isStalled ? Promise.race([executed, this.#world.delay(PATIENCE_MS)]) : executed);
      if (result === undefined) throw new Error('no answer in time');
      outcome = outcomeOfCommand(command, result, undefined);
    } catch (error) {
      if (!(error instanceof Error)) throw error;
    }
    await this.#thawed();
    if (outcome === null) {
      this.#world.givenUp.add(number);
      if (this.session.session === session) this.session.renounce();
    }
    this.memory.changed(change, mark, outcome);
    const isKnown =
      this.memory.attributes(inode) !== undefined || this.memory.name(inode, NAME) !== undefined;
    if (outcome !== null && isKnown) this.#world.kept++;
  }

  async #poll(request: CacheRequest): Promise<{ readonly answer: CacheAnswer; readonly sentMs: number }> {
    await this.#thawed();
    const sentMs = this.#nowMs();
    const { primary } = this.#world;
    if (primary === null) throw new Error('no primary');
    await this.#world.travel();
    const answer = await primary.service.cache(request);
    await this.#world.travel();
    await this.#thawed();
    return { answer, sentMs };
  }

  #thawed(): Promise<void> {
    return this.frozen ? new Promise((resolve) => this.#waiting.push(resolve)) : Promise.resolve();
  }

  #nowMs(): number {
    return this.#world.nowMs * this.#rate;
  }

  #violated(inode: number, what: string): void {
    this.#world.violation ??= `at ${this.#world.nowMs} ms client ${this.#number} believes old ${what} of inode ${inode}`;
  }
}
