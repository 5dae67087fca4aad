import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, type FileId, ROOT_CATALOG, type ServerId } from '../../base/ids.ts';
import { type Outcome, refusalOf } from '../../catalog/sessions.ts';
import {
  COMMANDS_VERSION,
  CONDITIONS_VERSION,
  FENCES_VERSION,
  HOLES_VERSION,
  PLANS_VERSION,
  QUOTA_WALKS_VERSION,
  requiredVersion,
  UPLOAD_CLASSES_VERSION,
  VOLUME_MOVES_VERSION,
  withoutHoles,
  withoutPlacement,
  withoutVolume,
  withoutWalks,
} from '../../catalog/versions.ts';
import type { View } from '../../replica/view.ts';
import { viewVoters } from '../../replica/view.ts';
import type {
  AnsweredCommands,
  Attributes,
  CacheAnswer,
  CacheOwner,
  CacheRequest,
  ChangesAnswer,
  ChangesRequest,
  Command,
  CommandOf,
  CommandRequest,
  CommandResults,
  FlushAnswer,
  GrantedAnswer,
  Query,
  QueryResults,
  ServerInfo,
} from '../../wire/catalog-api.ts';
import type { PlacementClass } from '../../wire/placement-class.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';
import { drawIncarnation } from '../process/incarnation.ts';
import { PrimaryWaiter, type PrimaryWaiterParts } from '../routing/primary-waiter.ts';
import type { CatalogService, CatalogStatus, CreationListener } from '../routing/service-interfaces.ts';
import type { CatalogMetrics } from './catalog-metrics.ts';
import type { CatalogRow } from './catalog-rows.ts';
import type { CatalogSubject, Execution } from './catalog-subject.ts';
import type { BlockedChange } from './client-caches.ts';
import { Departures } from './departures.ts';
import { DirectoryFills } from './directory-fills.ts';
import { MemberReads } from './member-reads.ts';
import { NumberWindow } from './number-window.ts';
import type { Recaller } from './recaller.ts';
import { needsBarrier, WriteBarrier } from './write-barrier.ts';

/** Commands in one batch, which is one operation and one transaction. */
const BATCH_MAX = 256;
/**
 * Characters of JSON in one batch, at most three bytes each in UTF-8: it fits one message between servers. A larger
 * batch would never reach a backup, and block all commands after it.
 */
const BATCH_CHARS_MAX = 2 * 1024 * 1024;
const QUEUE_MAX = 4_096;
/** Commands of operators: answered when they survive loss of power of all servers; others, once a majority has them. */
const DURABLE_KINDS: ReadonlySet<Command['kind']> = new Set([
  'volume-create',
  'volume-set',
  'volume-remove',
  'set-flags',
  'retain',
  'snapshot-create',
  'snapshot-remove',
  'snapshot-retain',
  'clone-create',
  'server-register',
  'server-add',
  'server-state',
  'server-zone',
  'server-label',
  'set-placement',
  'set-quota',
  'inherit-placement',
  'server-maintenance',
  'cluster-set',
  'server-remove',
  'set-replicas',
  'set-voters',
  'catalog-create',
  'catalog-report',
  'catalog-begin',
  'catalog-close',
  'follow-servers',
  'extend-numbers',
  'junction-create',
  'junction-remove',
  'volume-attach',
  'volume-detach',
  'volume-move',
  'volume-split',
  'volume-part',
  'volume-move-abort',
  'volume-freeze',
  'volume-number',
  'catalog-import',
]);
/** What a catalog executes and answers while its volume moves to it. */
const ARRIVAL: ReadonlySet<Command['kind'] | Query['kind']> = new Set([
  'catalog-import',
  'catalog-begin',
  'catalog-close',
  'catalog-state',
  'volume-export',
  'follow-servers',
  'extend-numbers',
]);
const ARRIVAL_RETRY_MS = 100;
const NS_PER_MS = 1_000_000n;
type Seen = 'members' | 'members-until-plans' | 'servers' | 'servers-until-attached';
/** Who must have been seen with the version of a command; for others, no connected member has an earlier one. */
const SEEN_BEFORE: { readonly [Kind in Command['kind']]?: Seen } = {
  // Servers send these. Releases before `PLANS_VERSION` do not know them.
  'plan-members': 'members-until-plans',
  'void-inodes': 'members-until-plans',
  // While a member may not know these, servers send a command for each file instead.
  'plan-files': 'members',
  'follow-views': 'members',
  // Servers of earlier releases do not find files of volumes with a catalog of their own.
  'catalog-create': 'servers',
  'volume-move': 'servers',
  'volume-split': 'servers',
  // Nor contents that a file shares with a snapshot, which any of them may have to copy.
  'clone-create': 'servers',
  // Nor do they find paths through attached volumes. While one is attached, the root catalog registers none of them.
  'volume-attach': 'servers-until-attached',
};
/** Commands that change attributes of which a file's creator may have acknowledged changes that it has not sent. */
const UNSENT_ATTRIBUTES: ReadonlySet<Command['kind']> = new Set([
  'set-attributes',
  'set-xattr',
  'remove-xattr',
  'set-flags',
  'retain',
  'link',
  'replace',
  'replace-with-contents',
]);
type CommandResult = CommandResults[Command['kind']];
/** Commands whose answers contain the times of the directories that they have changed. */
const TIMED = [
  'unlink',
  'unlink-files',
  'unlink-fenced',
  'rename',
  'rename-whiteout',
  'remove-directory',
  'create-file',
  'make-directory',
  'make-node',
  'symlink',
  'link',
] as const;
type TimedKind = (typeof TIMED)[number];

const NONE_UNFILLED: ReadonlyMap<number, number> = new Map();

const NO_LISTENER: CreationListener = {
  creating: () => undefined,
  created: () => undefined,
  notCreated: () => undefined,
};

interface WaitingCommand {
  readonly request: CommandRequest;
  readonly chars: number;
  /** Its changes that wait for recalls, or waited: their inodes are granted to no client until it is answered. */
  readonly blocked: BlockedChange[];
  readonly maker: CreationListener;
  resolve(result: CommandResult): void;
  reject(error: unknown): void;
}

export interface CatalogServiceParts extends PrimaryWaiterParts {
  readonly catalog: CatalogNumber;
  readonly driver: ReplicaDriver;
  readonly subject: CatalogSubject;
  readonly recaller: Recaller;
  placement(
    replicas: number,
    servers: readonly ServerInfo[],
    required: PlacementClass,
    loads?: ReadonlyMap<string, number>,
  ): ServerId[];
  commandsVersion(server: ServerId): number | null;
  /** @see CatalogMemberParts.isArriving */
  isArriving?(): boolean;
  /** @see CatalogMemberParts.listChanged */
  listChanged?(): void;
  /** @see CatalogSurvey.assertLost */
  assertLost?(catalog: CatalogRow): Promise<void>;
  /** @see CatalogMemberParts.retained */
  retained?(untilNs: string): Promise<void>;
  settle(file: FileId, timeoutMs: number): Promise<unknown>;
  readonly metrics?: Pick<CatalogMetrics, 'commands' | 'memberReads'>;
  capacity?(servers: readonly ServerInfo[], required: PlacementClass): number;
}

/**
 * The catalog's service at one of its members. As primary, it executes commands in batches and answers queries; as
 * backup, it answers queries that recall nothing while it has a read lease.
 */
export class LocalCatalogService implements CatalogService {
  readonly #parts: CatalogServiceParts;
  readonly #waiter: PrimaryWaiter;
  readonly #barrier: WriteBarrier;
  readonly #memberReads: MemberReads;
  #queue: WaitingCommand[] = [];
  #heldByBarrier: WaitingCommand[] = [];
  /** Number of commands that wait for recalls or directories, outside the queue. */
  #waitingOutside = 0;
  #executing = false;
  readonly #departures: Departures;
  readonly #fills: DirectoryFills;
  /** Null in the root catalog, whose epochs have numbers of their own. */
  readonly #window: NumberWindow | null;
  /** The version of commands that members were last seen with. No earlier release starts on their disks afterwards. */
  readonly #seenVersions = new Map<ServerId, number>();

  constructor(parts: CatalogServiceParts) {
    this.#parts = parts;
    this.#waiter = new PrimaryWaiter(parts);
    this.#memberReads = new MemberReads(parts);
    const { catalog, subject, driver, world } = parts;
    this.#departures = new Departures({
      ...{ catalog, world, driver },
      view: () => this.#view,
      servers: () => this.#servers(),
    });
    this.#fills = new DirectoryFills({
      world,
      seq: () => subject.record().seq,
      execute: async (request) => (await this.#enqueue(request, NO_LISTENER)) as CommandResults['clone-fill'],
    });
    this.#window =
      catalog === ROOT_CATALOG
        ? null
        : new NumberWindow({
            numbers: () => subject.numbers(),
            epoch: () => subject.record().installed.counter,
            isPrimary: () => driver.isPrimary,
            extend: (limit) => this.#extendNumbers(limit),
            flush: () => this.#bounded(driver.flush()),
          });
    this.#barrier = new WriteBarrier({
      world: parts.world,
      operationTimeoutMs: parts.operationTimeoutMs,
      nowMs: () => parts.clock.nowMs(),
      query: (query: Query) => parts.subject.query(query) as never,
      settle: (file: FileId, timeoutMs: number) => parts.settle(file, timeoutMs),
      released: () => {
        this.#queue.push(...this.#heldByBarrier.splice(0));
        void this.#pump();
      },
    });
    parts.driver.onRole(() => {
      if (!this.#isPrimary()) this.#refuseQueued();
      else void this.#pump();
    });
  }

  async execute(asked: CommandRequest, maker: CreationListener = NO_LISTENER): Promise<CommandResult> {
    this.#assertServes(asked.command.kind);
    await this.#primary();
    const command = this.#asUnderstood(asked.command);
    const request = { ...asked, command };
    this.#assertUnderstood(command);
    if (command.kind === 'volume-remove' && command.lost === true) await this.#assertLost(command.name);
    const execute = () => this.#enqueue(request, maker);
    const result = await (needsBarrier(command)
      ? this.#barrier.executeWhenSettled(command, execute)
      : execute());
    if (!DURABLE_KINDS.has(command.kind)) return result;
    this.#parts.listChanged?.();
    await this.#bounded(this.#parts.driver.flush());
    const untilNs = retainedUntil(command, result);
    if (untilNs !== null) await this.#bounded(this.#parts.retained?.(untilNs) ?? Promise.resolve());
    return result;
  }

  /** Until the list says that the volume is here, the root catalog may still end the move and change the volume. */
  #assertServes(kind: Command['kind'] | Query['kind']): void {
    if (ARRIVAL.has(kind) || this.#parts.isArriving?.() !== true) return;
    const text = `Catalog ${this.#parts.catalog} has no volume yet, as far as this server knows`;
    throw new ServiceError('recovering', text, { retryAfterMs: ARRIVAL_RETRY_MS });
  }

  async #assertLost(volume: string): Promise<void> {
    const { catalogs } = this.#parts.subject.query({ kind: 'catalogs' }) as QueryResults['catalogs'];
    const listed = catalogs.find(({ name, state }) => name === volume && state !== 'removed');
    // Numbers and ids in the list are valid: its commands have checked them.
    if (listed !== undefined) await this.#parts.assertLost?.(listed as CatalogRow);
  }

  #enqueue(request: CommandRequest, maker: CreationListener): Promise<CommandResult> {
    if (this.#queue.length + this.#heldByBarrier.length + this.#waitingOutside >= QUEUE_MAX) {
      const why = `The catalog's queue is full (${QUEUE_MAX} commands): retry later`;
      return Promise.reject(new ServiceError('busy', why, { retryAfterMs: 100 }));
    }
    return this.#bounded(
      new Promise((resolve, reject) => {
        const chars = JSON.stringify(request.command).length;
        this.#queue.push(this.#waitingCommand(request, chars, maker, resolve, reject));
        void this.#pump();
      }),
    );
  }

  /** Removes what only adds to a command that servers send, while a member may run a release that does not know it. */
  #asUnderstood(command: Command): Command {
    switch (command.kind) {
      case 'settle':
        return this.#notUpgraded(HOLES_VERSION).length === 0 ? command : withoutHoles(command);
      case 'create-orphan':
        return this.#notUpgraded(UPLOAD_CLASSES_VERSION).length === 0 ? command : withoutPlacement(command);
      case 'reserve-inodes':
        return this.#notUpgraded(VOLUME_MOVES_VERSION).length === 0 ? command : withoutVolume(command);
      case 'set-quota':
        return this.#olderThan(QUOTA_WALKS_VERSION).length === 0 ? command : withoutWalks(command);
      default:
        return command;
    }
  }

  /** Refuses a command that a known member cannot execute: its replica would fail. @throws ServiceError */
  #assertUnderstood(command: Command): void {
    const version = requiredVersion(command);
    if (version === 1) return;
    const older = this.#thoseWithout(command, version);
    if (older.length === 0) return;
    const [who, run] =
      older.length === 1 ? [`Server ${older[0]}`, 'runs'] : [`Servers ${older.join(', ')}`, 'run'];
    const runs = SEEN_BEFORE[command.kind]?.startsWith('servers') ? 'may run' : run;
    throw new ServiceError(
      'precondition-failed',
      `${who} ${runs} a release without the command "${command.kind}" (command version ${version}): upgrade first`,
      { outdated: older },
    );
  }

  #thoseWithout({ kind }: Command, version: number): readonly ServerId[] {
    switch (SEEN_BEFORE[kind]) {
      case 'members':
        return this.#notUpgraded(version);
      case 'members-until-plans':
        return this.#withoutPlans();
      case 'servers':
        return this.#serversNotUpgraded(version);
      case 'servers-until-attached':
        return this.#hasAttached() ? this.#olderThan(version) : this.#serversNotUpgraded(version);
      default:
        return this.#olderThan(version);
    }
  }

  #hasAttached(): boolean {
    const { catalogs } = this.#parts.subject.query({ kind: 'catalogs' }) as QueryResults['catalogs'];
    return catalogs.some(({ attached }) => attached !== undefined);
  }

  #serversNotUpgraded(version: number): readonly ServerId[] {
    const present = this.#servers().flatMap(({ id, state }) => (state === 'out' ? [] : [id as ServerId]));
    const all = new Set([...viewVoters(this.#view), ...present]);
    return [...all].filter((server) => this.#seenVersion(server) < version);
  }

  /** Members that may run a release before plans: also unknown ones, unless the catalog has had a plan already. */
  #withoutPlans(): readonly ServerId[] {
    const older = this.#olderThan(PLANS_VERSION);
    if (older.length > 0) return older;
    const unknown = this.#notUpgraded(PLANS_VERSION);
    if (unknown.length === 0) return [];
    const query = { kind: 'plans', after: 0, countMax: 1 } as const;
    const { begun } = this.#parts.subject.query(query) as QueryResults['plans'];
    return begun ? [] : unknown;
  }

  /** Members not seen with the version: also those that are disconnected, and may run an earlier release. */
  #notUpgraded(version: number): readonly ServerId[] {
    return viewVoters(this.#view).filter((member) => this.#seenVersion(member) < version);
  }

  /** The version of commands that all voters know, as far as this server has seen them. */
  get #membersVersion(): number {
    return Math.min(...viewVoters(this.#view).map((member) => this.#seenVersion(member)));
  }

  /** @returns the version of commands that the server was last seen with; 0 if it was not since this process started */
  #seenVersion(server: ServerId): number {
    const { self, commandsVersion } = this.#parts;
    if (server === self) return COMMANDS_VERSION;
    const known = commandsVersion(server);
    if (known !== null) this.#seenVersions.set(server, known);
    return this.#seenVersions.get(server) ?? 0;
  }

  /** Members that are known to run a release before the version. */
  #olderThan(version: number): readonly ServerId[] {
    const { self, commandsVersion } = this.#parts;
    return viewVoters(this.#view).filter((member) => {
      const known = member === self ? null : commandsVersion(member);
      return known !== null && known < version;
    });
  }

  async query(query: Query, exact = false): Promise<QueryResults[Query['kind']]> {
    this.#assertServes(query.kind);
    if (!exact && this.#parts.driver.role === 'backup') {
      const answer = await this.#bounded(this.#memberReads.answer(query));
      if (answer !== null) return answer;
    }
    const { driver, subject, recaller } = this.#parts;
    return this.#fills.whenFilled(async () => {
      await this.#primary();
      if (exact) await this.#bounded(recaller.recallForQuery(query, null, false));
      // The primary applies only committed batches: no reader waits for others.
      await this.#bounded(driver.untilReadable(driver.epoch, 0));
      return subject.query(query);
    });
  }

  /** Answers a client that caches the answer, after other clients' grants that conflict have been recalled. */
  async queryWithGrants(
    query: Query,
    session: number,
    delegate = false,
  ): Promise<GrantedAnswer<QueryResults[Query['kind']]>> {
    this.#assertServes(query.kind);
    const { driver, subject, recaller } = this.#parts;
    const ask = (asked: Query) => subject.query(asked);
    return this.#fills.whenFilled(async () => {
      await this.#primary();
      await this.#bounded(recaller.recallForQuery(query, session, delegate));
      await this.#bounded(driver.untilReadable(driver.epoch, 0));
      return delegate ? recaller.answerDelegating(query, session, ask) : recaller.answer(query, session, ask);
    });
  }

  async pollCache(request: CacheRequest): Promise<CacheAnswer> {
    await this.#primary();
    const { driver, recaller } = this.#parts;
    await this.#bounded(driver.untilReadable(driver.epoch, 0));
    return recaller.poll(request, this.#olderThan(FENCES_VERSION).length === 0);
  }

  async changes({ inode, recursive, after, waitMs }: ChangesRequest): Promise<ChangesAnswer> {
    const { driver, subject, clock } = this.#parts;
    const untilMs = clock.nowMs() + waitMs;
    for (;;) {
      await this.#primary();
      await this.#bounded(driver.untilReadable(driver.epoch, 0));
      const through = subject.changes.last;
      const found = subject.changes.since(after ?? through);
      const changes = subject.changesBelow(inode, recursive, found ?? []);
      const leftMs = untilMs - clock.nowMs();
      if (found === null || changes.length > 0 || leftMs <= 0)
        return { changes, through, resync: found === null };
      await subject.changes.whenChanged(leftMs);
    }
  }

  /** Finds lost commands of `answered`, then flushes, which fails if the epoch ends meanwhile: it covers the rest. */
  async flush(answered: readonly AnsweredCommands[] = []): Promise<FlushAnswer> {
    await this.#primary();
    const { driver, subject } = this.#parts;
    const found =
      answered.length === 0
        ? { missing: [] }
        : (subject.query({ kind: 'missing-commands', answered: [...answered] }) as FlushAnswer);
    await this.#bounded(driver.flush());
    return found;
  }

  /** @throws ServiceError `precondition-failed` if one of them is removed, or would join and leaves the cluster */
  async changeMembers(members: readonly ServerId[]): Promise<View> {
    await this.#primary();
    // A batch that is executed already may let a server go.
    while (!this.#isReady) await this.#bounded(this.#changed());
    this.#departures.assertMayBeMembers(members);
    return this.#parts.driver.changeMembers(members);
  }

  status(): CatalogStatus {
    const { lease, driver } = this.#parts;
    const { epoch, seq, committedSeq, view } = driver.status();
    const { holder: primary } = lease.view(driver.file);
    return {
      ...{ primary, epoch: epoch.counter, seq, committedSeq, members: view.members },
      invitesQueries: this.#memberReads.invites,
    };
  }

  #servers(): readonly ServerInfo[] {
    const query = { kind: 'servers', counts: false } as const;
    return (this.#parts.subject.query(query) as QueryResults['servers']).servers;
  }

  get #view(): View {
    return this.#parts.subject.record().view;
  }

  #isPrimary(): boolean {
    return this.#parts.driver.isPrimary;
  }

  #primary(): Promise<void> {
    return this.#waiter.primary(this.#parts.driver, 'the catalog', false);
  }

  /**
   * Whether a batch may be executed now, if this server is the primary. A change of members has a position in the
   * order, too: no batch is executed before it is applied, and none begins while a batch is executed. So both ask this
   * last, and await nothing afterwards.
   */
  get #isReady(): boolean {
    const { driver, subject } = this.#parts;
    return subject.isReady && (!driver.isPrimary || driver.orderedSeq === driver.status().seq);
  }

  /** Resolves when `#isReady` may have become true. */
  async #changed(): Promise<void> {
    const { driver, subject } = this.#parts;
    await subject.ready();
    if (!this.#isReady) await driver.nextChange();
  }

  async #pump(): Promise<void> {
    if (this.#executing) return;
    this.#executing = true;
    try {
      for (;;) {
        await this.#window?.raiseAhead();
        if (this.#queue.length === 0) return;
        while (!this.#isReady) await this.#changed();
        if (!this.#isPrimary()) {
          this.#refuseQueued();
          return;
        }
        this.#holdBarred();
        const batch = this.#takeBatch();
        const missing = await this.#executeBatch(batch);
        if (missing === null) continue;
        try {
          await this.#window?.raiseFor(missing);
          this.#queue.unshift(...batch);
        } catch (error) {
          for (const waiting of batch) waiting.reject(error);
        }
      }
    } finally {
      this.#executing = false;
    }
  }

  /** Executes the command by itself, between two batches. */
  async #extendNumbers(limit: number): Promise<void> {
    while (!this.#isReady) await this.#changed();
    if (!this.#isPrimary()) return;
    const command = { kind: 'extend-numbers', limit } as const;
    const since = this.#parts.subject.record().seq;
    const request = { session: drawIncarnation(this.#parts.world), number: 1, since, command };
    await new Promise<CommandResult>((resolve, reject) => {
      const waiting = this.#waitingCommand(request, 0, NO_LISTENER, resolve, reject);
      void this.#executeBatch([waiting]);
    });
  }

  /** Moves commands that the write barrier holds from the queue to `#held`. */
  #holdBarred(): void {
    if (!this.#barrier.isUp) return;
    const goes: WaitingCommand[] = [];
    for (const waiting of this.#queue)
      (this.#barrier.isBarred(waiting.request.command) ? this.#heldByBarrier : goes).push(waiting);
    this.#queue = goes;
  }

  /** Takes commands for one operation from the queue, as many as fit; some are alone in it. */
  #takeBatch(): WaitingCommand[] {
    let count = 0;
    let chars = 0;
    for (const waiting of this.#queue) {
      if (isAlone(waiting.request.command)) {
        count = Math.max(1, count);
        break;
      }
      chars += waiting.chars;
      if (count > 0 && (count === BATCH_MAX || chars > BATCH_CHARS_MAX)) break;
      count++;
    }
    return this.#queue.splice(0, count);
  }

  /** @returns null; or how many numbers it needs, if fewer are below the flushed limit: then nothing is executed */
  async #executeBatch(batch: readonly WaitingCommand[]): Promise<number | null> {
    const { subject, driver } = this.#parts;
    const nowNs = this.#parts.clock.wallNs();
    let execution: Execution;
    let taken = 0;
    try {
      const [first] = batch;
      if (first === undefined) return null;
      if (needsBarrier(first.request.command)) this.#barrier.assertStill(first.request.command);
      const before = this.#window?.next() ?? 0;
      execution = subject.execute(
        batch.map((waiting) => waiting.request),
        {
          nowNs,
          leaseNs: BigInt(Math.floor(this.#parts.clock.nowMs())) * NS_PER_MS,
          placement: (...wanted) => this.#parts.placement(...wanted),
          capacity: (...wanted) => this.#parts.capacity?.(...wanted) ?? Number.POSITIVE_INFINITY,
          refusal: ({ cache, command }) =>
            this.#parts.recaller.refusal(cache) ?? this.#departures.refusal(command),
          membersVersion: this.#membersVersion,
          seenVersion: (server) => this.#seenVersion(server as ServerId) || null,
        },
      );
      if (this.#window !== null && execution.body !== null) taken = this.#window.next() - before;
    } catch (error) {
      subject.abandon();
      for (const waiting of batch) waiting.reject(error);
      return null;
    }
    if (taken > 0 && this.#window?.covers(this.#window.next()) === false) {
      subject.abandon();
      return taken;
    }
    const changes = batch.map((waiting, place) =>
      this.#blockedChangeOf(waiting, execution.touched[place] ?? []),
    );
    if (this.#setAside(batch, changes)) return null;
    const unfilled = this.#fillFirst(batch, execution.unfilled ?? NONE_UNFILLED);
    const all = { inodes: [...new Set(changes.flatMap(({ inodes }) => inodes))], owner: null };
    // Until the batch is committed, the inodes that it changes are granted to no client.
    this.#parts.recaller.block(all);
    const making = batch.map((waiting, place) =>
      createdBy(waiting, execution.outcomes[place], changes[place]),
    );
    // The lease requests of the creating server leave in the same frames as the batch.
    for (const [place, { maker }] of batch.entries())
      for (const file of making[place] ?? []) maker.creating(file);
    try {
      if (execution.body !== null) {
        const submitted = driver.submit({ request: null, result: new Uint8Array(0), body: execution.body });
        // After the frames of the batch are sent: the backups execute it meanwhile.
        this.#parts.world.soon(() => subject.prepare());
        await submitted;
      }
    } catch (error) {
      // It is unknown whether a later primary finds the batch at some replica: retries of the requests find out.
      subject.abandon();
      for (const [place, waiting] of batch.entries()) {
        if (unfilled.has(place)) continue;
        for (const file of making[place] ?? []) waiting.maker.notCreated(file);
        waiting.reject(error);
      }
      return null;
    } finally {
      this.#parts.recaller.release(all);
    }
    for (const [place, waiting] of batch.entries()) {
      if (unfilled.has(place)) continue;
      const outcome = execution.outcomes[place];
      assert(outcome !== undefined, 'Every request has an outcome');
      const { kind } = waiting.request.command;
      this.#parts.metrics?.commands.add(1, {
        kind,
        outcome: outcome.kind === 'done' ? 'done' : outcome.code,
      });
      for (const file of making[place] ?? []) waiting.maker.created(file);
      if (outcome.kind === 'done') {
        this.#reportAccesses(waiting.request.command);
        waiting.resolve(this.#withAdditions(waiting, changes, place, outcome.result, nowNs));
      } else waiting.reject(refusalOf(outcome));
    }
    return null;
  }

  #blockedChangeOf({ request }: WaitingCommand, touched: readonly number[]): BlockedChange {
    const { cache = null, command } = request;
    const owner =
      cache === null || command.kind !== 'unlink-fenced'
        ? cache
        : { ...cache, forgets: [...cache.forgets, ...command.files.map(({ inode }) => inode)] };
    const directories = UNSENT_ATTRIBUTES.has(command.kind)
      ? this.#parts.recaller.directoriesToRecall(touched, owner)
      : [];
    return { inodes: [...touched, ...directories], owner };
  }

  /** Reports reads, which recall nothing, to sessions with grants. */
  #reportAccesses(command: Command): void {
    if (command.kind !== 'note-accesses') return;
    const inodes = command.accesses.map(({ inode }) => inode);
    this.#parts.recaller.noteAccesses(inodes, (query) => this.#parts.subject.query(query));
  }

  /**
   * Adds to a result what a retry does not get: the time of the change; the delegation of a new directory, which no
   * other client knows, to its creator on request; the grant of attributes that the client has changed.
   * @param changes of all commands of the batch, in order; the command's is at `place`
   */
  #withAdditions(
    { request: { command, cache } }: WaitingCommand,
    changes: readonly BlockedChange[],
    place: number,
    result: CommandResult,
    nowNs: bigint,
  ): CommandResult {
    // A retry is answered with the earlier result, and changes nothing.
    if (changes[place]?.inodes.length === 0) return result;
    if (command.kind === 'set-attributes') {
      const { attributes } = result as CommandResults['set-attributes'];
      const isLatest = changes.findLastIndex(({ inodes }) => inodes.includes(attributes.inode)) <= place;
      const isCached = isLatest && cache?.forgets.includes(attributes.inode) === true;
      const granted = isCached && this.#parts.recaller.grantChanged(cache.under, attributes);
      return granted ? { attributes, granted: cache.under } : result;
    }
    if (!TIMED.some((kind) => kind === command.kind)) return result;
    const timed = { ...(result as CommandResults[TimedKind]), atNs: String(nowNs) };
    if (command.kind === 'create-file' && this.#membersVersion >= CONDITIONS_VERSION) {
      const created = timed as CommandResults['create-file'];
      const generation = this.#keptUnder(command, created, cache);
      return { ...created, conditional: true, ...(generation === null ? {} : { generation }) };
    }
    if (command.kind !== 'make-directory' || cache?.session === undefined) return timed;
    const { attributes } = result as CommandResults['make-directory'];
    return { ...timed, ...this.#parts.recaller.delegate(cache.session, attributes.inode) };
  }

  #keptUnder(
    { place }: CommandOf<'create-file'>,
    { created, attributes }: CommandResults['create-file'],
    cache: CacheOwner | undefined,
  ): number | null {
    if (cache?.keeps !== true || !created || !('parent' in place)) return null;
    return this.#parts.recaller.created(cache.under, place.parent, attributes.inode);
  }

  /**
   * If commands change what other clients cache, undoes the batch, executes the other commands again at once, and these
   * after the recall. So no transaction is open during a recall, and only such commands wait for clients.
   * @returns whether there were such commands
   */
  #setAside(batch: readonly WaitingCommand[], changes: readonly BlockedChange[]): boolean {
    const { recaller, subject } = this.#parts;
    const held = changes.map((change) => recaller.isCached(change));
    if (!held.includes(true)) return false;
    subject.abandon();
    this.#queue.unshift(...batch.filter((_, place) => held[place] === false));
    for (const [place, waiting] of batch.entries()) {
      const change = changes[place];
      if (held[place] === true && change !== undefined) void this.#recall(waiting, change);
    }
    return true;
  }

  /** Executes commands that need a directory of a clone again once it is filled. @returns the same directories */
  #fillFirst(
    batch: readonly WaitingCommand[],
    unfilled: ReadonlyMap<number, number>,
  ): ReadonlyMap<number, number> {
    for (const [place, directory] of unfilled) {
      const waiting = batch[place];
      assert(waiting !== undefined, 'A place is one of the batch');
      void this.#executeFilled(waiting, directory);
    }
    return unfilled;
  }

  async #executeFilled(waiting: WaitingCommand, directory: number): Promise<void> {
    this.#waitingOutside++;
    try {
      await this.#fills.fill(directory);
      this.#queue.unshift(waiting);
    } catch (error) {
      waiting.reject(error);
    } finally {
      this.#waitingOutside--;
    }
    void this.#pump();
  }

  async #recall(waiting: WaitingCommand, change: BlockedChange): Promise<void> {
    this.#waitingOutside++;
    this.#parts.recaller.block(change);
    waiting.blocked.push(change);
    await this.#parts.recaller.recalled(change);
    this.#waitingOutside--;
    this.#queue.unshift(waiting);
    void this.#pump();
  }

  #waitingCommand(
    request: CommandRequest,
    chars: number,
    maker: CreationListener,
    resolve: WaitingCommand['resolve'],
    reject: WaitingCommand['reject'],
  ): WaitingCommand {
    const blocked: BlockedChange[] = [];
    const release = (): void => {
      for (const change of blocked.splice(0)) this.#parts.recaller.release(change);
    };
    return {
      request,
      chars,
      blocked,
      maker,
      resolve: (result) => {
        release();
        resolve(result);
      },
      reject: (error) => {
        release();
        reject(error);
      },
    };
  }

  #refuseQueued(): void {
    const { lease, driver } = this.#parts;
    const { holder } = lease.view(driver.file);
    const details = holder === null || holder === this.#parts.self ? {} : { primary: holder };
    for (const waiting of [...this.#queue.splice(0), ...this.#heldByBarrier.splice(0)]) {
      waiting.reject(
        new ServiceError('not-primary', 'This server is no longer the primary of the catalog', details),
      );
    }
  }

  #bounded<Value>(work: Promise<Value>): Promise<Value> {
    return this.#waiter.bounded(work, this.#view, 'the catalog');
  }
}

/**
 * Commands alone in their batch: those that need the barrier, and those that begin or end a catalog. What comes after
 * them is executed once they are committed: a batch that is undone for lack of numbers undoes neither.
 */
function isAlone(command: Command): boolean {
  return needsBarrier(command) || command.kind === 'catalog-begin' || command.kind === 'catalog-close';
}

/**
 * @returns the file that a command has created; none for a retry, which touches nothing, and none for a reserved
 * number, whose owner may have used the first epoch for it already
 */
function createdBy(
  { request: { command } }: WaitingCommand,
  outcome: Outcome | undefined,
  change: BlockedChange | undefined,
): Attributes[] {
  if (outcome?.kind !== 'done' || change?.inodes.length === 0) return [];
  if (command.kind === 'create-file' && command.reserved !== undefined) return [];
  const { result } = outcome;
  return 'created' in result && result.created ? [result.attributes] : [];
}

/** @returns until when the executed command has something retained; null if it is no such command */
function retainedUntil(command: Command, result: CommandResult): string | null {
  switch (command.kind) {
    case 'retain':
      return (result as CommandResults['retain']).attributes.retainUntilNs ?? null;
    case 'snapshot-create':
    case 'snapshot-retain':
      return (result as CommandResults['snapshot-retain']).snapshot.retainUntilNs ?? null;
    default:
      return null;
  }
}
