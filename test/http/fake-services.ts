import { randomInt } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import Database from 'better-sqlite3';
import type { FastifyBaseLogger, FastifyInstance } from 'fastify';
import { type ErrorDetails, ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, type FileId, inodesOf, ROOT_CATALOG, type ServerId } from '../../base/ids.ts';
import { InodeCatalogs } from '../../base/inode-catalogs.ts';
import { executeRequests } from '../../catalog/batch.ts';
import { changesBelow } from '../../catalog/changes.ts';
import { runQuery } from '../../catalog/queries.ts';
import { ensureSchema } from '../../catalog/schema.ts';
import { outcomeResult } from '../../catalog/sessions.ts';
import { Tables } from '../../catalog/tables.ts';
import type { RequestId } from '../../replica/operation.ts';
import { LockTable } from '../../server/file/lock-table.ts';
import type { WholeFiles } from '../../server/file/whole-files.ts';
import { buildApp } from '../../server/http/app.ts';
import { Gateway } from '../../server/routing/gateway.ts';
import { ListedCatalogs } from '../../server/routing/listed-catalogs.ts';
import type {
  CatalogService,
  Catalogs,
  FileLeaseStatus,
  FileService,
  KnownCluster,
  StatusService,
} from '../../server/routing/service-interfaces.ts';
import { CatalogChanges } from '../../server/storage/catalog-changes.ts';
import { MetricsRegistry } from '../../server/telemetry/metrics.ts';
import type {
  AnsweredCommands,
  Command,
  CommandRequest,
  CommandResults,
  FlushAnswer,
  Query,
} from '../../wire/catalog-api.ts';
import { contentVersionCompare } from '../../wire/content-version.ts';
import type { FileState, ServerStatus, WriteResult } from '../../wire/http-api.ts';
import { rangeFromWire, rangeToWire } from '../../wire/lock-offsets.ts';
import { patientWorld } from '../patient-world.ts';

interface FakeFile {
  bytes: Buffer;
  seq: number;
  epoch: number;
  contents: { epoch: number; seq: number };
  modifiedNs: string;
  primary: ServerId | null;
  readonly results: Map<string, WriteResult>;
}

/** What a test may do at the entrance of a service: observe, wait, or throw. */
export type Interceptor = (call: {
  readonly server: ServerId;
  readonly method: string;
  readonly file?: FileId;
  readonly request?: RequestId | CommandRequest;
}) => void | Promise<void>;

export interface FakeServer {
  readonly id: ServerId;
  readonly url: string;
  readonly app: FastifyInstance;
  readonly gateway: Gateway;
  readonly metrics: MetricsRegistry;
  /** What the next `self()` returns besides the defaults. */
  status: Partial<ServerStatus>;
}

export interface FakeOptions {
  readonly servers?: number;
  readonly replicas?: number;
  readonly operationTimeoutMs?: number;
  /**
   * Small files of REST are created with contents, without replication: the catalog names them, and `contentsOf` has
   * the bytes.
   */
  readonly createsWithContents?: boolean;
  /** The volume `main` is in this catalog; the root catalog knows only the servers. */
  readonly catalog?: CatalogNumber;
}

type Mutable<Type> = { -readonly [Key in keyof Type]: Type[Key] };

/**
 * Several servers with real sockets and a real catalog, and with simulated replication: one set of contents for all,
 * and a test that says which server is primary of what. It tests what the HTTP layer does with the answers of the
 * services, not the services.
 */
async function notShared(): Promise<never> {
  throw new Error('No file of this test is of a clone');
}

export class FakeCluster {
  readonly servers: FakeServer[] = [];
  readonly files = new Map<FileId, FakeFile>();
  /** Unreachable servers; their sockets still accept, as those of a paused process do. */
  readonly away = new Set<ServerId>();
  /** Requests that reached a catalog service, whatever their outcome; and those that it executed. */
  readonly seen: CommandRequest[] = [];
  readonly commands: CommandRequest[] = [];
  /** What the root catalog was asked, if the volume is in another one. */
  readonly rootSeen: string[] = [];
  /** What flushes of the catalog have named. */
  readonly flushed: (readonly AnsweredCommands[])[] = [];
  /** Whether a flush misses all that it names. */
  isLossy = false;
  catalogEpoch = 1;
  /** Contents that arrived before their name. */
  wholesStored = 0;
  readonly logged: string[] = [];
  catalogPrimary: ServerId | null;
  intercept: Interceptor = () => {};
  /** What all servers know of the cluster. */
  readonly known: Mutable<KnownCluster> = {
    catalogReplicas: null,
    stateOf: () => 'in',
    maintenanceUntilMs: () => null,
    labelsOf: () => [],
  };
  readonly #db = new Database(':memory:');
  readonly #ids: readonly ServerId[];
  readonly #operationTimeoutMs: number;
  readonly #createsWithContents: boolean;
  readonly #catalog: CatalogNumber;
  readonly #settings: { readonly replicas: number; readonly objectBytes: number };
  #seq = 0;
  readonly #changes = new CatalogChanges(patientWorld, 0);
  #nowNs = 1_700_000_000_000_000_000n;
  #placed = 0;

  private constructor(options: FakeOptions) {
    this.#ids = Array.from({ length: options.servers ?? 3 }, (_, index) => `s${index + 1}` as ServerId);
    this.#operationTimeoutMs = options.operationTimeoutMs ?? 2000;
    this.#createsWithContents = options.createsWithContents ?? false;
    this.#catalog = options.catalog ?? ROOT_CATALOG;
    this.catalogPrimary = this.#ids[0] as ServerId;
    ensureSchema(this.#db, this.#catalog);
    const settings = { replicas: options.replicas ?? 3, objectBytes: 128 * 1024 };
    this.#settings = settings;
    if (this.#catalog === ROOT_CATALOG)
      this.execute({ session: 1, number: 1, command: { kind: 'volume-create', name: 'main', ...settings } });
    else this.#beginCatalog();
  }

  static async start(options: FakeOptions = {}): Promise<FakeCluster> {
    const cluster = new FakeCluster(options);
    // The services query the addresses after their construction: by then all servers listen.
    const urls = new Map<ServerId, string>();
    for (const id of cluster.#ids) cluster.servers.push(await cluster.#startServer(id, urls));
    return cluster;
  }

  server(index: number): FakeServer {
    const server = this.servers[index];
    if (server === undefined) throw new RangeError(`There is no server ${index}`);
    return server;
  }

  #beginCatalog(): void {
    const number = this.#catalog;
    const settings = this.#settings;
    const servers = this.#ids.map((id) => ({
      ...{ id, url: `http://${id}.example`, zone: '', state: 'in' as const, since: 0, storageId: id },
    }));
    const begin: Command = { kind: 'catalog-begin', number, name: 'main', settings, servers };
    const extend: Command = { kind: 'extend-numbers', limit: inodesOf(number).end };
    for (const [place, command] of [begin, extend].entries())
      this.execute({ session: 1, number: place + 1, command });
  }

  /** Takes a server down and notifies the others, as the transport does. */
  disconnect(id: ServerId): void {
    this.away.add(id);
    for (const { gateway } of this.servers) gateway.peerDisconnected(id);
  }

  /** Executes in the catalog, whichever server is its primary. */
  execute(request: CommandRequest): ReturnType<typeof outcomeResult> {
    const run = this.#db.transaction(() =>
      executeRequests(this.#db, ++this.#seq, [request], {
        nowNs: this.#tick(),
        placement: (count) => {
          const first = this.#placed++;
          return Array.from(
            { length: count },
            (_, step) => this.#ids[(first + step) % this.#ids.length] as ServerId,
          );
        },
      }),
    );
    const [outcome] = run().outcomes;
    this.#changes.append(this.#seq, Tables.of(this.#db).takeChanges());
    if (outcome === undefined) throw new Error('A request has an outcome');
    return outcomeResult(outcome);
  }

  /** Writes as a program on a mount does: in place, at once. */
  overwrite(file: FileId, text: string): void {
    const contents = this.contentsOf(file);
    contents.bytes = Buffer.from(text);
    this.#changed(contents);
  }

  contentsOf(file: FileId): FakeFile {
    let found = this.files.get(file);
    if (found === undefined) {
      found = {
        bytes: Buffer.alloc(0),
        seq: 0,
        epoch: 0,
        contents: { epoch: 0, seq: 0 },
        modifiedNs: this.#tick().toString(),
        primary: null,
        results: new Map(),
      };
      this.files.set(file, found);
    }
    return found;
  }

  async close(): Promise<void> {
    await Promise.all(this.servers.map(({ gateway }) => gateway.close()));
    await Promise.all(this.servers.map(({ app }) => app.close()));
    this.#db.close();
  }

  async #startServer(id: ServerId, urls: Map<ServerId, string>): Promise<FakeServer> {
    const metrics = new MetricsRegistry(patientWorld);
    const status: { status: Partial<ServerStatus> } = { status: {} };
    const gateway = new Gateway({
      founders: [],
      copyAt: notShared,
      services: {
        catalogs: this.#catalogsOf(id),
        files: this.#filesOf(id),
        status: this.#statusOf(id, urls, status),
      },
      world: patientWorld,
      metrics,
    });
    const wholes = this.#createsWithContents ? { wholeFiles: this.#wholeFiles() } : {};
    const app = await buildApp({ gateway, log: this.#log(), metrics, ...wholes });
    await app.listen({ host: '127.0.0.1', port: 0 });
    const url = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`;
    urls.set(id, url);
    return Object.assign(status, { id, url, app, gateway, metrics });
  }

  #wholeFiles(): WholeFiles {
    const owner = randomInt(1, 2 ** 47);
    const store: WholeFiles['store'] = async (_volume, bytes) => {
      this.wholesStored++;
      const replicas = this.#ids.slice(0, 3);
      const command: Command = { kind: 'reserve-inodes', owner, count: 1, members: [replicas] };
      const reserved = this.execute({
        session: randomInt(2, 2 ** 47),
        number: 1,
        command,
      }) as CommandResults['reserve-inodes'];
      const found = this.contentsOf(reserved.first as FileId);
      const contents = { epoch: 1, seq: 1 };
      Object.assign(found, { bytes: Buffer.from(bytes), ...contents, contents });
      const { modifiedNs } = found;
      const sizeBytes = bytes.length;
      return {
        ...{ inode: reserved.first, owner, replicas, objectBytes: 128 * 1024 },
        ...{ sizeBytes, modifiedNs, contents },
      };
    };
    const fake = { store, entryCreated: () => undefined, mayExceedQuota: async () => true };
    return fake as unknown as WholeFiles;
  }

  #catalogsOf(id: ServerId): Catalogs {
    const own = this.#catalogOf(id);
    const number = this.#catalog;
    const members = this.#ids.slice(0, 3);
    const state = 'ready' as const;
    const row = {
      number,
      name: 'main',
      state,
      members,
      view: 1,
      made: 1,
      since: 1,
      settings: this.#settings,
    };
    const listed = number === ROOT_CATALOG ? [] : [row];
    return new ListedCatalogs({
      root: number === ROOT_CATALOG ? own : this.#rootCatalog(id),
      rows: {
        list: { catalogs: listed },
        inodeCatalogs: InodeCatalogs.NONE_MOVED,
        byNumber: (wanted) => listed.find((one) => one.number === wanted) ?? null,
        byName: (name) => listed.find((one) => one.name === name) ?? null,
        onChange: () => () => undefined,
      },
      at: (catalog) => (catalog === number ? own : null),
      refresh: async () => undefined,
    });
  }

  #rootCatalog(id: ServerId): CatalogService {
    const refuse = async (what: string, details: ErrorDetails = {}): Promise<never> => {
      this.rootSeen.push(what);
      throw new ServiceError('not-found', `The root catalog is asked: ${what}`, details);
    };
    return {
      flush: () => refuse('flush'),
      execute: ({ command }) => refuse(command.kind, { elsewhere: true }),
      changeMembers: () => refuse('change-members'),
      query: ({ kind }) => refuse(kind),
      queryWithGrants: ({ kind }) => refuse(kind),
      pollCache: () => refuse('cache'),
      changes: () => refuse('changes'),
      status: () => ({
        ...{
          primary: id,
          epoch: 90,
          seq: 9_000,
          committedSeq: 9_000,
          members: this.#ids,
          invitesQueries: false,
        },
      }),
    };
  }

  #catalogOf(id: ServerId): CatalogService {
    const guard = async (method: string, request?: CommandRequest) => {
      await this.intercept({ server: id, method, ...(request === undefined ? {} : { request }) });
      if (this.catalogPrimary === id) return;
      const details = this.catalogPrimary === null ? {} : { primary: this.catalogPrimary };
      throw new ServiceError('not-primary', 'This server is not the catalog’s primary', details);
    };
    return {
      flush: async (answered = []) => {
        await guard('flush-catalog');
        this.flushed.push(answered);
        if (this.isLossy) return { missing: answered };
        return runQuery(this.#db, { kind: 'missing-commands', answered: [...answered] }) as FlushAnswer;
      },
      execute: async (request) => {
        this.seen.push(request);
        await guard('execute', request);
        this.commands.push(request);
        return this.execute(request);
      },
      changeMembers: async (members) => {
        await guard('change-members');
        return { number: 1, members };
      },
      query: async (query: Query) => {
        await guard('query');
        return runQuery(this.#db, query as never) as Awaited<ReturnType<CatalogService['query']>>;
      },
      queryWithGrants: async (query: Query) => {
        await guard('query');
        const result = runQuery(this.#db, query as never) as Awaited<ReturnType<CatalogService['query']>>;
        return { result, granted: null };
      },
      pollCache: async () => {
        await guard('cache');
        return { session: null, validMs: 0, recalls: [], through: 0 };
      },
      changes: async ({ inode, recursive, after }) => {
        await guard('changes');
        const found = this.#changes.since(after ?? this.#changes.last);
        const changes = changesBelow(this.#db, inode, recursive, found ?? []);
        return { changes, through: this.#changes.last, resync: found === null };
      },
      status: () => ({
        primary: this.catalogPrimary,
        epoch: this.catalogEpoch,
        seq: this.#seq,
        committedSeq: this.#seq,
        members: this.#ids.slice(0, 3),
        invitesQueries: false,
      }),
    };
  }

  #filesOf(id: ServerId): FileService {
    const membersOf = (file: FileId): readonly string[] =>
      runQuery(this.#db, { kind: 'attributes', inode: file }).attributes.replicas;
    const open = async (method: string, file: FileId, request?: RequestId) => {
      await this.intercept({ server: id, method, file, ...(request === undefined ? {} : { request }) });
      const members = membersOf(file);
      const found = this.contentsOf(file);
      if (!members.includes(id))
        throw new ServiceError('not-primary', `Server ${id} has no replica of ${file}`);
      if (found.primary === null) {
        found.primary = id;
        found.epoch++;
      }
      if (found.primary !== id) {
        throw new ServiceError('not-primary', `Server ${id} is a backup of ${file}`, {
          primary: found.primary,
        });
      }
      return found;
    };
    const change = async (
      method: string,
      file: FileId,
      request: RequestId,
      edit: (found: FakeFile) => number,
    ): Promise<WriteResult> => {
      const found = await open(method, file, request);
      const key = `${request.session}/${request.number}`;
      const known = found.results.get(key);
      if (known !== undefined) return known;
      const offset = edit(found);
      this.#changed(found);
      const result = { ...this.#state(file, found), offset };
      found.results.set(key, result);
      return result;
    };
    const tables = new Map<FileId, LockTable>();
    const tableOf = (file: FileId): LockTable => {
      const table = tables.get(file) ?? new LockTable();
      tables.set(file, table);
      return table;
    };
    const granted = (epoch: number) => ({ primary: id, epoch, leaseMs: 10_000 });
    return {
      lock: async (file, { client, owner, kind, type, start, end, pid }) => {
        const { epoch } = await open('lock', file);
        const wish = { client, owner, kind, type, ...rangeFromWire({ start, end }), pid };
        if (tableOf(file).conflict(wish) !== null) throw new ServiceError('locked', 'Another has it');
        tableOf(file).set(wish);
        return granted(epoch);
      },
      locate: async (file) => {
        const found = await open('locate', file);
        return { locations: null, state: this.#state(file, found), served: 'primary' };
      },
      renewLocks: async (file, { client, locks }) => {
        const { epoch } = await open('renew-locks', file);
        const lost = locks.flatMap((lock, place) =>
          tableOf(file).covers({ ...lock, ...rangeFromWire(lock), client }) ? [] : [place],
        );
        return { ...granted(epoch), lost };
      },
      locks: async (file) => {
        const { epoch } = await open('locks', file);
        const listed = tableOf(file).list();
        const locks = listed.map((lock) => ({ ...lock, ...rangeToWire(lock) }));
        return { primary: id, epoch, locks, waiting: 0, graceMs: 0 };
      },
      read: async (file, offset, length) => {
        const found = await open('read', file);
        return {
          bytes: new Uint8Array(found.bytes.subarray(offset, offset + length)),
          state: this.#state(file, found),
          served: 'primary',
          ageMs: 0,
        };
      },
      readStale: async (file, offset, length) => {
        const found = this.files.get(file);
        if (found === undefined) throw new ServiceError('not-primary', 'Not here');
        const bytes = new Uint8Array(found.bytes.subarray(offset, offset + length));
        return { bytes, state: this.#state(file, found), served: 'local', ageMs: 7 };
      },
      write: (file, request, offset, bytes, { contents, sizeBytes } = {}) =>
        change('write', file, request, (found) => {
          const isOther = contents !== undefined && contentVersionCompare(contents, found.contents) !== 0;
          if (isOther || (sizeBytes ?? found.bytes.length) !== found.bytes.length) {
            throw new ServiceError('precondition-failed', `File ${file} is another by now`);
          }
          const at = offset === 'append' ? found.bytes.length : offset;
          const size = Math.max(found.bytes.length, at + bytes.length);
          const grown = Buffer.alloc(size);
          found.bytes.copy(grown);
          grown.set(bytes, at);
          found.bytes = grown;
          return at;
        }),
      writeParts: (file, request, parts) =>
        change('write', file, request, (found) => {
          const size = Math.max(
            found.bytes.length,
            ...parts.map(({ offset, bytes }) => offset + bytes.length),
          );
          const grown = Buffer.alloc(size);
          found.bytes.copy(grown);
          for (const { offset, bytes } of parts) grown.set(bytes, offset);
          found.bytes = grown;
          return parts[0]?.offset ?? 0;
        }),
      truncate: (file, request, sizeBytes) =>
        change('truncate', file, request, (found) => {
          const cut = Buffer.alloc(sizeBytes);
          found.bytes.copy(cut);
          found.bytes = cut;
          return 0;
        }),
      punch: (file, request, { from, to, grows }) =>
        change('punch', file, request, (found) => {
          const size = grows ? Math.max(found.bytes.length, to) : found.bytes.length;
          const punched = Buffer.alloc(size);
          found.bytes.copy(punched);
          found.bytes = punched.fill(0, Math.min(from, size), Math.min(to, size));
          return to;
        }),
      extent: async (file, offset, whence) => {
        const found = await open('extent', file);
        const at = whence === 'data' ? offset : found.bytes.length;
        return { ...this.#state(file, found), found: offset < found.bytes.length ? at : null };
      },
      copy: async (file, request, toOffset, read) => {
        const piece = await read();
        return change('copy', file, request, (found) => {
          const bytes = piece.kind === 'data' ? piece.bytes : new Uint8Array(0);
          const grown = Buffer.alloc(Math.max(found.bytes.length, toOffset + bytes.length));
          found.bytes.copy(grown);
          grown.set(bytes, toOffset);
          found.bytes = grown;
          return toOffset + bytes.length;
        });
      },
      flush: async (file) => this.#state(file, await open('flush', file)),
      settle: async (file) => {
        const state = this.#state(file, await open('settle', file));
        const { sizeBytes, modifiedNs, contents } = state;
        const command: Command = {
          kind: 'settle',
          files: [{ inode: file, sizeBytes, modifiedNs, contents: { ...contents } }],
        };
        this.execute({ session: randomInt(2, 2 ** 47), number: 1, command });
        return state;
      },
      state: async (file) => this.#state(file, await open('state', file)),
      creating: () => undefined,
      created: () => undefined,
      notCreated: () => undefined,
      becomePrimary: async (file) => this.#state(file, await open('lead', file)),
      seal: async (file) => ({ ...this.#state(file, await open('seal', file)), sealed: true }),
      changeMembers: async (file, members) => {
        await open('change-members', file);
        return { number: 2, members };
      },
      leaseStatus: (file): FileLeaseStatus | null => {
        const found = this.files.get(file);
        if (found === undefined) return null;
        const members = membersOf(file) as readonly ServerId[];
        if (!members.includes(id)) return null;
        const { primary, epoch } = found;
        const isPrimary = primary === id;
        return {
          view: { number: 1, members },
          primary,
          epoch,
          role: isPrimary ? 'primary' : 'backup',
          lease: { holder: primary, remainingMs: primary === null ? 0 : 1234 },
          replicas: isPrimary
            ? members.map((server) => ({
                server,
                role: server === id ? ('primary' as const) : ('backup' as const),
                state: this.away.has(server) ? ('unreachable' as const) : ('current' as const),
                seq: found.seq,
                lagOperations: 0,
                lagBytes: 0,
                behindMs: 0,
              }))
            : [],
        };
      },
    };
  }

  #statusOf(
    id: ServerId,
    urls: ReadonlyMap<ServerId, string>,
    extra: { readonly status: Partial<ServerStatus> },
  ): StatusService {
    return {
      cluster: 'test',
      id,
      urls,
      timing: { leaseMs: 2000, clockSkewMaxMs: 100 },
      operationTimeoutMs: this.#operationTimeoutMs,
      isConnected: (server) => !this.away.has(server) && !this.away.has(id),
      known: this.known,
      self: async () => {
        await this.intercept({ server: id, method: 'self' });
        return {
          id,
          url: urls.get(id) ?? '',
          reachable: true,
          state: 'serving' as const,
          recoveringMs: 0,
          primaries: [...this.files.values()].filter(({ primary }) => primary === id).length,
          backups: 0,
          replicas: this.files.size,
          underReplicated: [],
          freeBytes: 1,
          totalBytes: 2,
          pid: process.pid,
          uptimeMs: 1,
          clockOffsets: {},
          ...extra.status,
        };
      },
    };
  }

  #state(file: FileId, found: FakeFile): FileState {
    return {
      file,
      sizeBytes: found.bytes.length,
      modifiedNs: found.modifiedNs,
      contents: { ...found.contents },
      seq: found.seq,
      primary: found.primary ?? '',
      epoch: found.epoch,
    };
  }

  #changed(found: FakeFile): void {
    found.seq++;
    found.contents = { epoch: found.epoch, seq: found.seq };
    found.modifiedNs = this.#tick().toString();
  }

  #tick(): bigint {
    this.#nowNs += 1_000_000_000n;
    return this.#nowNs;
  }

  /** Stores what is logged at `error`, so that a test can assert that nothing was. */
  #log(): FastifyBaseLogger {
    const quiet = () => {};
    const log: FastifyBaseLogger = {
      level: 'error',
      child: () => log,
      fatal: (...parts: unknown[]) => this.logged.push(String(parts.at(-1))),
      error: (...parts: unknown[]) => this.logged.push(String(parts.at(-1))),
      warn: quiet,
      info: quiet,
      debug: quiet,
      trace: quiet,
      silent: quiet,
    } as FastifyBaseLogger;
    return log;
  }
}
