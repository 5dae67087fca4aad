import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import type {
  Attributes,
  CacheAnswer,
  CacheOwner,
  CacheRequest,
  GrantedAnswer,
  NotedRead,
  Query,
  QueryResults,
} from '../../wire/catalog-api.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';
import type { CacheCounts, CatalogMetrics } from './catalog-metrics.ts';
import { type BlockedChange, ClientCaches, type ClientCachesOptions } from './client-caches.ts';
import { CreatedFiles } from './created-files.ts';

/** A poll without recalls waits for them for one part in this many of the session's duration. */
const POLLS_PER_LEASE = 3;
const SLOW_MS = 1_000;
/** Inodes of which is found out in one tick whether their volume moves. */
const LEAVING_PAGE = 1_000;

type Answer = QueryResults[Query['kind']];

export interface RecallerParts {
  readonly driver: Pick<ReplicaDriver, 'servesForMs' | 'noteCachedFor' | 'onRole'>;
  readonly options: ClientCachesOptions;
  readonly world: World;
  /** Tells whether an inode is of a volume that moves away, by committed state; null while none does. */
  leavingInodes?(): ((inode: number) => boolean) | null;
  readonly log?: Logger;
  readonly metrics?: Pick<CatalogMetrics, 'recalls' | 'recallWait'>;
}

/** Recalls caches before changes, and waits for the clients; `ClientCaches` has the rules. */
export class Recaller {
  readonly #parts: RecallerParts;
  readonly #caches: ClientCaches;
  readonly #created = new CreatedFiles();
  readonly #endPoll = new Map<number, () => void>();
  readonly #recheckers = new Set<() => void>();

  constructor(parts: RecallerParts) {
    this.#parts = parts;
    this.#caches = new ClientCaches(parts.options);
    parts.driver.onRole(() => this.#endPolls());
  }

  /** Ends expired sessions first: without polls and changes, nothing else does. */
  counts(): CacheCounts {
    this.isCached({ inodes: [], owner: null });
    return this.#caches.counts();
  }

  /**
   * Renews a session, then waits until it has recalls; to be called while the primary may answer reads.
   * @param isFenced every server that may become the primary obeys fences, as far as is known; else no session begins
   */
  async poll({ session, ...request }: CacheRequest, isFenced: boolean): Promise<CacheAnswer> {
    const { driver, world } = this.#parts;
    const fenced = isFenced && request.fenced === true;
    const poll = { ...request, fenced, session: session ?? null };
    const polled = { ...this.#caches.poll(poll, world.nowMs(), driver.servesForMs()), fenced: true };
    this.#recheck();
    // All sessions end within their duration from now; there is none if all have acknowledged.
    driver.noteCachedFor(
      this.#caches.counts().sessions === 0 ? -Infinity : polled.validMs * CLOCK_RATE_MARGIN,
    );
    const id = polled.session;
    if (
      id === null ||
      id !== session ||
      polled.validMs === 0 ||
      this.#caches.mustAnswerPoll(id, world.nowMs())
    )
      return polled;
    await this.#updates(id, polled.validMs / POLLS_PER_LEASE);
    return { ...polled, ...this.#caches.takePending(id) };
  }

  /** Answers a query, and grants the inodes of the answer, in one tick. @param ask reads from committed state */
  answer(query: Query, session: number, ask: (query: Query) => Answer): GrantedAnswer<Answer> {
    const result = presentOrNull(query, ask);
    const { leaving = [], others = [] } = Object.groupBy(inodesOf(query, result), this.#leavingOrNot());
    const refused = this.#caches.grant(session, others, this.#parts.world.nowMs());
    return { result, granted: refused === null ? null : { session, refused: [...refused, ...leaving] } };
  }

  /** Answers a client that wants the queried directory delegated; nothing else of the answer is granted. */
  answerDelegating(query: Query, session: number, ask: (query: Query) => Answer): GrantedAnswer<Answer> {
    const result = presentOrNull(query, ask);
    const inode = directoryOf(query);
    // A client may create files in a delegated directory before it sends them; in a junction they would be refused.
    const isFit = inode !== null && attributesOf(inode, ask)?.junction === undefined;
    return { result, granted: null, ...(isFit ? this.delegate(session, inode) : {}) };
  }

  /** Grants an inode to the client whose command changed it. To be called in the tick in which that is committed. */
  grantChanged(session: number | undefined, { inode, live }: Pick<Attributes, 'inode' | 'live'>): boolean {
    if (session === undefined || live || this.#isLeaving(inode)) return false;
    return this.#caches.grant(session, [inode], this.#parts.world.nowMs())?.length === 0;
  }

  /** Reads changed access times: each session with a grant of such an inode learns the time with its next poll. */
  noteAccesses(inodes: Iterable<number>, ask: (query: Query) => Answer): void {
    const nowMs = this.#parts.world.nowMs();
    const notified = new Set<number>();
    for (const inode of inodes) {
      if (!this.#caches.isGranted(inode)) continue;
      const read = readOf(inode, ask);
      if (read === null) continue;
      for (const session of this.#caches.noteAccess(read, nowMs)) notified.add(session);
    }
    for (const session of notified) this.#endPoll.get(session)?.();
  }

  /** @returns the session if the directory is delegated to it; else nothing */
  delegate(session: number, inode: number): Pick<GrantedAnswer<unknown>, 'delegated' | 'generation'> {
    if (this.#isLeaving(inode)) return {};
    const generation = this.#caches.delegate(session, inode, this.#parts.world.nowMs());
    return generation === null ? {} : { delegated: session, generation };
  }

  /**
   * A client has created a file, and may keep changes of its attributes while the directory is delegated to it. To be
   * called in the tick in which the creation is committed.
   * @returns the generation of that delegation; null if the client must not keep changes
   */
  created(session: number | undefined, directory: number, inode: number): number | null {
    if (session === undefined) return null;
    const sinceMs = this.#parts.world.nowMs();
    const generation = this.#caches.generationOf(session, directory, sinceMs);
    return generation !== null && this.#created.add(inode, { directory, session, sinceMs })
      ? generation
      : null;
  }

  /** @returns directories to be recalled before another client's change of these files' attributes */
  directoriesToRecall(inodes: readonly number[], owner: CacheOwner | null): number[] {
    const nowMs = this.#parts.world.nowMs();
    return this.#created
      .of(inodes)
      .filter(({ session }) => session !== owner?.under)
      .filter(({ session, directory }) => this.#caches.generationOf(session, directory, nowMs) !== null)
      .map(({ directory }) => directory);
  }

  /** @returns `fence-lost` if the command's session no longer has a delegation that its fence names; else null */
  refusal({ under = 0, fence = [] }: Partial<CacheOwner> = {}): ServiceError | null {
    const nowMs = this.#parts.world.nowMs();
    const lost = fence.find((held) => !this.#caches.hasDelegation(under, held, nowMs));
    if (lost === undefined) return null;
    return new ServiceError(
      'fence-lost',
      `Session ${under} does not hold the delegation of directory ${lost.inode}`,
    );
  }

  /**
   * Before a query of a directory that is delegated to another client: recalls the delegation, so that the client sends
   * its pending changes before the query is answered. Other queries do not wait.
   * @param session of the caller, whose own delegation stays; null for a client without a cache
   * @param delegate the directory is to be delegated to that session: plain grants of others are recalled, too
   */
  async recallForQuery(query: Query, session: number | null, delegate: boolean): Promise<void> {
    const inode = directoryOf(query);
    if (inode === null || !(delegate || this.#caches.isDelegated(inode, session))) return;
    const change = this.#caches.changeOfInode(session, inode);
    if (!this.isCached(change)) return;
    this.block(change);
    try {
      await this.recalled(change);
    } finally {
      this.release(change);
    }
  }

  isCached(change: BlockedChange): boolean {
    return this.#caches.isCached(change, this.#parts.world.nowMs());
  }

  block(change: BlockedChange): void {
    this.#caches.block(change);
  }

  release(change: BlockedChange): void {
    this.#caches.release(change);
  }

  /** Recalls what changes; resolves when no other client caches it any more, at the latest when the sessions end. */
  async recalled(change: BlockedChange): Promise<void> {
    const { world, log, metrics } = this.#parts;
    const beganMs = world.nowMs();
    while (this.isCached(change)) {
      for (const session of this.#caches.recall(change, world.nowMs())) this.#endPoll.get(session)?.();
      await this.#nextRecheck(this.#caches.cachedUntilMs(change) - world.nowMs());
    }
    const waitedMs = Math.round(world.nowMs() - beganMs);
    metrics?.recalls.add();
    metrics?.recallWait.add(waitedMs / 1000);
    if (waitedMs > SLOW_MS)
      log?.warn(
        { inodes: change.inodes, waitedMs },
        'a change was delayed by a client that did not answer a cache recall',
      );
  }

  /** Recalls all that is granted of volumes that move away; of these, nothing is granted again. */
  async recallLeaving(): Promise<void> {
    const granted = this.#caches.granted();
    while (granted.length > 0) {
      const inodes = granted.splice(0, LEAVING_PAGE).filter(this.#parts.leavingInodes?.() ?? (() => false));
      await this.recalled({ inodes, owner: null });
    }
  }

  #isLeaving(inode: number): boolean {
    return this.#leavingOrNot()(inode) === 'leaving';
  }

  #leavingOrNot(): (inode: number) => 'leaving' | 'others' {
    const isLeaving = this.#parts.leavingInodes?.() ?? null;
    return (inode) => (isLeaving?.(inode) === true ? 'leaving' : 'others');
  }

  /** Stops granting; resolves when all clients have dropped their caches, or their sessions are over, or it reopens. */
  async close(): Promise<void> {
    this.#caches.close();
    this.#endPolls();
    while (this.#caches.isClosed && this.counts().sessions > 0) await this.#nextRecheck(CLOSING_CHECK_MS);
  }

  /** Grants again what this server may grant as primary. */
  reopen(): void {
    this.#caches.reopen();
  }

  /** Resolves when the session has something to report, another poll of it arrives, or after `waitMs`. */
  #updates(session: number, waitMs: number): Promise<void> {
    // Only one poll of a session waits: a later one has newer acknowledgments.
    this.#endPoll.get(session)?.();
    return new Promise((resolve) => {
      const done = (): void => {
        timer.cancel();
        if (this.#endPoll.get(session) === done) this.#endPoll.delete(session);
        resolve();
      };
      const timer = this.#parts.world.after(waitMs, done);
      this.#endPoll.set(session, done);
    });
  }

  /** Resolves at the next poll of any client, which may acknowledge recalls, or after `limitMs`. */
  #nextRecheck(limitMs: number): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        timer.cancel();
        this.#recheckers.delete(done);
        resolve();
      };
      const timer = this.#parts.world.after(Math.max(0, limitMs) + 1, done);
      this.#recheckers.add(done);
    });
  }

  #recheck(): void {
    for (const recheck of [...this.#recheckers]) recheck();
  }

  #endPolls(): void {
    for (const end of [...this.#endPoll.values()]) end();
  }
}

const CLOCK_RATE_MARGIN = 1.03;
const CLOSING_CHECK_MS = 100;

/** As `ask`, but returns null if a `lookup` finds the directory without such an entry: that can be cached, too. */
function presentOrNull(query: Query, ask: (query: Query) => Answer): Answer | null {
  try {
    return ask(query);
  } catch (error) {
    if (query.kind !== 'lookup' || !(error instanceof ServiceError) || error.code !== 'not-found')
      throw error;
    const parent = ask({ kind: 'attributes', inode: query.parent });
    if ('attributes' in parent && parent.attributes.kind === 'directory') return null;
    throw error;
  }
}

function readOf(inode: number, ask: (query: Query) => Answer): NotedRead | null {
  const attributes = attributesOf(inode, ask);
  if (attributes === null) return null;
  const { accessedNs, changedNs } = attributes;
  return { inode, accessedNs, changedNs };
}

/** @returns null if the inode is gone */
function attributesOf(inode: number, ask: (query: Query) => Answer): Attributes | null {
  try {
    const found = ask({ kind: 'attributes', inode });
    return 'attributes' in found ? found.attributes : null;
  } catch (error) {
    if (error instanceof ServiceError && error.code === 'not-found') return null;
    throw error;
  }
}

function directoryOf(query: Query): number | null {
  switch (query.kind) {
    case 'lookup':
      return query.parent;
    case 'list':
    case 'attributes':
      return query.inode;
    default:
      return null;
  }
}

/** The inodes that an answer depends on. Live files are excluded: the catalog knows too little of them. */
function inodesOf(query: Query, result: Answer | null): number[] {
  const inodes: number[] = [];
  // A snapshot never changes, and is not the inode's current state.
  if ('snapshot' in query && query.snapshot !== undefined) return inodes;
  if (query.kind === 'lookup') inodes.push(query.parent);
  if (query.kind === 'list') inodes.push(query.inode);
  if (result === null) return inodes;
  const named = 'attributes' in result ? [result] : 'entries' in result ? result.entries : [];
  for (const { attributes } of named)
    if (!attributes.live && attributes.snapshot === undefined) inodes.push(attributes.inode);
  return inodes;
}
