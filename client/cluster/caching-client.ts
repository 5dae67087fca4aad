import { ServiceError } from '../../base/errors.ts';
import type {
  Attributes,
  Command,
  CommandOf,
  CommandResults,
  Place,
  Query,
  QueryResults,
} from '../../wire/catalog-api.ts';
import type { FileWithContents, NewFileOutcome } from '../../wire/new-files.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { CacheSession, drawClientNumber, type SessionEvents } from './cache-session.ts';
import {
  CatalogCache,
  directoriesOf,
  type NamedPlace,
  type OwnChange,
  type OwnOutcome,
} from './catalog-cache.ts';
import type { CommandOptions, OwnedOptions } from './catalog-commands.ts';
import { ClusterClient, type ClusterClientOptions } from './cluster-client.ts';
import { outcomeOfCommand, outcomeOfCreations } from './own-outcome.ts';

export interface CachingClientOptions extends ClusterClientOptions {
  /** Resolves when nothing derived from these inodes is cached: other clients are about to change them. */
  readonly recalled?: (inodes: readonly number[]) => Promise<void>;
  /**
   * Resolves when nothing derived from answers about these inodes is used any more: this client is about to change
   * them, which recalls nothing from it. Called again for directories when the outcome is known.
   */
  readonly changing?: (inodes: readonly number[]) => Promise<void>;
  /** Resolves when nothing derived from answers about these inodes has an earlier access time. */
  readonly accessed?: (inodes: readonly number[]) => Promise<void>;
  /** A poll failed; what is cached stays valid until the session expires. */
  readonly failed?: (error: unknown) => void;
}

/**
 * A client that caches names, absent names, attributes and listings, and answers queries from the cache. The catalog's
 * primary recalls what another client is about to change, and waits until nothing of it is cached here. Without a cache
 * session every query is sent, and nothing is cached. Attributes of live files are never cached.
 */
export class CachingClient extends ClusterClient {
  readonly #memory = new CatalogCache();
  readonly #session: CacheSession;
  readonly #dropDerived: (inodes: readonly number[]) => Promise<void>;
  readonly #changing: (inodes: readonly number[]) => Promise<void>;
  #sharer: SessionSharer | null = null;

  constructor(options: CachingClientOptions) {
    super(options);
    this.#dropDerived = options.recalled ?? (() => Promise.resolve());
    this.#changing = options.changing ?? (() => Promise.resolve());
    this.#session = new CacheSession({
      client: drawClientNumber(this.world),
      poll: (request, { signal, timeoutMs }) => this.renewCache(request, { signal, timeoutMs }),
      recalled: (inodes) => this.#recalled(inodes),
      readsNoted: (reads) => {
        const inodes = reads.filter((read) => this.#memory.noteRead(read)).map(({ inode }) => inode);
        return options.accessed?.(inodes) ?? Promise.resolve();
      },
      ended: () => {
        this.#memory.forgetAll();
        this.#sharer?.ended();
      },
      unused: () => this.#dropDerived(this.#memory.inodes),
      flushed: () => this.#sharer?.flushed?.() ?? Promise.resolve(),
      world: this.world,
      failed: options.failed ?? (() => undefined),
    });
    this.#session.start();
    // Before it left, the root catalog has recalled all that was granted of the volume.
    this.onMoved(() => this.#session.restart());
  }

  /** How long these attributes stay valid without a recall, in milliseconds; 0 if they are not those in the cache. */
  validMs(attributes: CachedAttributes): number {
    const cached = this.#memory.attributes(attributes.inode);
    return cached !== undefined && isSame(cached, attributes) ? this.#session.remainingMs : 0;
  }

  /** @returns cached attributes of the name's inode; undefined if they are not cached: then a query is needed */
  granted(parent: number, name: string): Attributes | undefined {
    return this.#session.session === null ? undefined : this.#attributesAt({ parent, name });
  }

  grantedAttributes(inode: number): Attributes | undefined {
    return this.#session.session === null ? undefined : this.#attributes(inode);
  }

  /** How long the name stays this inode's without a recall, in milliseconds; 0 if the cache does not say that it is. */
  nameValidMs(parent: number, name: string, inode: number): number {
    return this.#memory.name(parent, name) === inode ? this.#session.remainingMs : 0;
  }

  /** Whether the catalog's primary recalls the directory from this client before another client changes it. */
  isGranted(directory: number): boolean {
    const cached = this.#memory.attributes(directory) ?? this.#memory.attributesBeforeOwnChanges(directory);
    return this.#session.session !== null && cached !== undefined;
  }

  /** @returns the cache session, for delegations; `events` report its recalls and its end, too */
  share(events: SessionSharer): CacheSession {
    this.#sharer = events;
    return this.#session;
  }

  override async query<Kind extends Query['kind']>(
    query: Extract<Query, { kind: Kind }>,
    options?: CallOptions,
  ): Promise<QueryResults[Kind]> {
    // The compiler does not see that the answer to a query of this kind is one of `Kind`.
    return (await this.#query(query as Query, options)) as QueryResults[Kind];
  }

  override async command<Kind extends Command['kind']>(
    command: Extract<Command, { kind: Kind }>,
    options: CommandOptions = {},
  ): Promise<CommandResults[Kind]> {
    const change = this.#changeOf(command as Command);
    if (change.names.length + change.inodes.length === 0) {
      const result = await super.command<Kind>(command, options);
      this.#noteAccesses(command as Command);
      return result;
    }
    const moved =
      command.kind === 'rename' ? this.#attributesAt((command as CommandOf<'rename'>).from) : undefined;
    // The kernel drops the attributes of what a program unlinks itself. The primary knows that the files of a fenced
    // unlink are forgotten: there are more of them than a request may name.
    const drops = command.kind === 'unlink-fenced' ? [] : change.inodes;
    return this.#change(
      change,
      drops,
      (owned) => super.command<Kind>(command, { ...options, ...ownedBy(options, owned) }),
      (result) => outcomeOfCommand(command as Command, result, moved),
      (result) => (command.kind === 'set-attributes' ? (result as CommandResults['set-attributes']) : null),
    );
  }

  override async createWithContents(
    creatingServer: string,
    files: readonly FileWithContents[],
    options: OwnedOptions = {},
  ): Promise<readonly NewFileOutcome[]> {
    const names = files.map(({ parent, name }) => ({ parent, name }));
    const change = { names, inodes: files.map(({ inode }) => inode) };
    return this.#change(
      change,
      [],
      (owned) => super.createWithContents(creatingServer, files, { ...options, ...ownedBy(options, owned) }),
      (outcomes) => outcomeOfCreations(files, outcomes),
    );
  }

  override async close(): Promise<void> {
    await this.#session.stop();
    await super.close();
  }

  /**
   * Sends a command of this client, and caches its outcome. The catalog does not recall the named directories and
   * `drops` from this client: `#changing` ends their use before the command is sent.
   */
  async #change<Result>(
    change: OwnChange,
    drops: readonly number[],
    send: (owned: Owned) => Promise<Result>,
    outcomeOf: (result: Result) => OwnOutcome | null,
    grantOf: (result: Result) => CommandResults['set-attributes'] | null = () => null,
  ): Promise<Result> {
    const parents = [...directoriesOf(change)];
    const forgets = [...new Set([...parents, ...drops])];
    const begunAt = this.#memory.beginChange(change);
    let outcome: OwnOutcome | null = null;
    let grant: CommandResults['set-attributes'] | null = null;
    try {
      await this.#changing(forgets);
      const { client, session } = this.#session;
      const cache = { client, forgets };
      // Without a session nothing is cached, and the primary recalls the grants of the last one.
      const result = await send({
        cache: session === null ? cache : { ...cache, under: session },
        unknown: () => {
          if (this.#session.session === session) this.#session.renounce();
        },
      });
      outcome = outcomeOf(result);
      grant = grantOf(result);
      return result;
    } finally {
      const { session } = this.#session;
      const granted = session !== null && grant?.granted === session ? grant.attributes : null;
      this.#memory.endChange(change, begunAt, outcome, granted);
      if (parents.length > 0) await this.#changing(parents);
    }
  }

  async #query(query: Query, options?: CallOptions): Promise<QueryResults[Query['kind']]> {
    const { session } = this.#session;
    // What a snapshot shows is not the inode's present state, and is never recalled.
    const isOfSnapshot = 'snapshot' in query || ('volume' in query && query.volume.includes('@'));
    if (session === null || isOfSnapshot) return super.query(query as never, options);
    const known = this.#fromCache(query);
    if (known !== undefined) return known ?? throwNotFound(query);
    if (!isCacheable(query)) return super.query(query as never, options);
    const requestedAt = this.#memory.request();
    const { result, granted } = await this.queryForCache(query as never, session, options);
    if (granted !== null && granted.session === this.#session.session) {
      this.#learn(query, result, new Set(granted.refused), requestedAt);
    }
    return result ?? throwNotFound(query);
  }

  /** @returns null for a name that does not exist, undefined if the cache has no answer */
  #fromCache(query: Query): QueryResults[Query['kind']] | null | undefined {
    const memory = this.#memory;
    switch (query.kind) {
      case 'attributes': {
        const attributes = this.#attributes(query.inode);
        return attributes === undefined ? undefined : { attributes };
      }
      case 'lookup': {
        if (memory.name(query.parent, query.name) === null) return null;
        const attributes = this.#attributesAt(query);
        return attributes === undefined ? undefined : { attributes };
      }
      case 'list': {
        const page = memory.page(query.inode, query.after, query.countMax);
        if (page === undefined) return undefined;
        const entries: QueryResults['list']['entries'][number][] = [];
        for (const name of page.names) {
          const inode = memory.name(query.inode, name);
          const attributes = typeof inode === 'number' ? memory.attributes(inode) : undefined;
          if (attributes === undefined) return undefined;
          entries.push({ name, attributes });
        }
        return { entries, more: page.more };
      }
      case 'xattrs':
        return this.#hasNoXattrs(query.inode) ? { names: [] } : undefined;
      case 'xattr':
        if (!this.#hasNoXattrs(query.inode)) return undefined;
        throw new ServiceError('no-attribute', `Inode ${query.inode} has no attribute "${query.name}"`);
      default:
        return undefined;
    }
  }

  /** Known from granted attributes; own changes of names in a directory do not change its extended attributes. */
  #hasNoXattrs(inode: number): boolean {
    return (this.#memory.attributes(inode) ?? this.#memory.attributesBeforeOwnChanges(inode))?.xattrs === 0;
  }

  /** Caches the granted parts of an answer. @param refused inodes for which the catalog granted nothing */
  #learn(
    query: Query,
    result: QueryResults[Query['kind']] | null,
    refused: ReadonlySet<number>,
    requestedAt: number,
  ): void {
    const memory = this.#memory;
    if (result !== null && 'attributes' in result) {
      if (!refused.has(result.attributes.inode)) memory.learn(result.attributes, requestedAt);
    }
    if (query.kind === 'lookup' && !refused.has(query.parent)) {
      const inode = result !== null && 'attributes' in result ? result.attributes.inode : null;
      memory.learnName(query.parent, query.name, inode, requestedAt);
    }
    if (query.kind !== 'list' || result === null || !('entries' in result)) return;
    for (const { name, attributes } of result.entries) {
      if (!refused.has(attributes.inode)) memory.learn(attributes, requestedAt);
      if (!refused.has(query.inode)) memory.learnName(query.inode, name, attributes.inode, requestedAt);
    }
    if (refused.has(query.inode)) return;
    const { countMax, after, inode } = query;
    const names = result.entries.map(({ name }) => name);
    memory.learnPage(inode, after, { countMax, names, more: result.more }, requestedAt);
  }

  async #recalled(inodes: readonly number[]): Promise<void> {
    for (const inode of inodes) this.#memory.forget(inode);
    await Promise.all([this.#dropDerived(inodes), this.#sharer?.recalled(inodes)]);
  }

  #noteAccesses(command: Command): void {
    if (command.kind !== 'note-accesses') return;
    for (const access of command.accesses) this.#memory.noteAccess(access);
  }

  #attributesAt(place: Place): Attributes | undefined {
    if ('volume' in place) return undefined;
    const inode = this.#memory.name(place.parent, place.name);
    return typeof inode === 'number' ? this.#attributes(inode) : undefined;
  }

  /**
   * @returns granted attributes. Those of a directory delegated to this client stay valid while own commands change
   *   names in it: another client's query for them recalls it first, and its parent's listing does not grant them.
   */
  #attributes(inode: number): Attributes | undefined {
    const granted = this.#memory.attributes(inode);
    if (granted !== undefined || this.#sharer?.isDelegated(inode) !== true) return granted;
    return this.#memory.attributesBeforeOwnChanges(inode);
  }

  /** @returns what a command names; everything else that it changes is recalled from this client, too */
  #changeOf(command: Command): OwnChange {
    const places: NamedPlace[] = [];
    const inodes: number[] = [];
    const add = (place: Place): void => {
      if ('volume' in place) return;
      places.push(place);
      const inode = this.#memory.name(place.parent, place.name);
      if (typeof inode === 'number') inodes.push(inode);
    };
    if ('place' in command) add(command.place);
    if ('from' in command) {
      add(command.from);
      add(command.to);
    }
    if ('inode' in command) inodes.push(command.inode);
    if (command.kind === 'unlink-files' || command.kind === 'unlink-fenced')
      for (const { parent, name, inode } of command.files) {
        places.push({ parent, name });
        inodes.push(inode);
      }
    return { names: places, inodes };
  }
}

const CACHED = [
  'kind',
  'mode',
  'uid',
  'gid',
  'links',
  'sizeBytes',
  'modifiedNs',
  'changedNs',
  'target',
] as const;
type CachedAttributes = Pick<Attributes, (typeof CACHED)[number] | 'inode' | 'contents' | 'xattrs'>;

function isSame(one: CachedAttributes, other: CachedAttributes): boolean {
  const [a, b] = [one.contents, other.contents];
  if (a.epoch !== b.epoch || a.seq !== b.seq || one.xattrs !== other.xattrs) return false;
  return CACHED.every((key) => one[key] === other[key]);
}

type SessionSharer = Pick<SessionEvents, 'recalled' | 'ended' | 'flushed'> & {
  isDelegated(directory: number): boolean;
};

type Owned = OwnedOptions & Required<Pick<OwnedOptions, 'cache'>>;

/** Joins the cache part of a request with its caller's delegations; both belong to one session. */
function ownedBy({ cache }: OwnedOptions, owned: Owned): OwnedOptions {
  return { ...owned, cache: { ...owned.cache, ...cache, forgets: owned.cache.forgets } };
}

function isCacheable({ kind }: Query): boolean {
  return kind === 'lookup' || kind === 'attributes' || kind === 'list';
}

function throwNotFound(query: Query): never {
  const name = query.kind === 'lookup' ? query.name : query.kind;
  throw new ServiceError('not-found', `There is no "${name}"`);
}
