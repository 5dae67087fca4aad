import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { ERRORS, type ErrorCode, ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, inodesOf } from '../../base/ids.ts';
import type {
  Attributes,
  Command,
  CommandOf,
  CommandRequest,
  Query,
  ServerInfo,
  VolumeInfo,
} from '../../wire/catalog-api.ts';
import type { FileInfo, FileState, VolumeCatalogStatus, WriteResult } from '../../wire/http-api.ts';
import type { LockList } from '../../wire/lock-api.ts';

/** Pause between two bytes of an answer that is sent slowly. */
const TRICKLE_MS = 60;

/** What a fake server does with a request instead of answering it properly. */
export type Reaction =
  | {
      readonly kind: 'problem';
      readonly code: ErrorCode;
      readonly headers?: Record<string, string>;
      readonly extra?: object;
    }
  | {
      readonly kind: 'answer';
      readonly status: number;
      readonly text: string;
      readonly headers?: Record<string, string>;
    }
  /** The connection breaks; nothing has been executed. */
  | { readonly kind: 'cut' }
  /** The request is executed, but the answer is lost with the connection. */
  | { readonly kind: 'execute-and-cut' }
  | { readonly kind: 'hang' }
  /** The request is answered properly, later. */
  | { readonly kind: 'wait'; readonly until: Promise<void> }
  /** Half of the answer is sent byte by byte, the rest after that; only for bytes of a file. */
  | { readonly kind: 'trickle'; readonly until: Promise<void> };

export interface SeenRequest {
  readonly method: string;
  readonly path: string;
  readonly search: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

interface FakeInode {
  attributes: Attributes;
  contents: Buffer;
  seq: number;
}

/**
 * The servers' side of the HTTP contract in one process: real sockets, one state behind all of them, no replication.
 * Enough of the catalog for the command line; enough of the data for exactly-once checks.
 */
export class FakeCluster {
  readonly servers: FakeServer[] = [];
  readonly #volumes = new Map<string, VolumeInfo>();
  readonly #inodes = new Map<number, FakeInode>();
  readonly #children = new Map<number, Map<string, number>>();
  readonly #answers = new Map<string, unknown>();
  #nextInode = 1;
  /** Changes that were really executed. */
  executed = 0;
  verdict: 'healthy' | 'degraded' | 'down' = 'healthy';
  /** Id that answers name as the primary. */
  primary = 's1';
  /** Of volumes with a catalog of their own. */
  readonly catalogs: VolumeCatalogStatus[] = [];
  /** Volumes whose catalogs do not answer. */
  unavailable: readonly string[] = [];
  /** The catalog's answer about the servers. */
  listed: readonly ServerInfo[] = [];

  static async start(count = 3): Promise<FakeCluster> {
    const cluster = new FakeCluster();
    for (let index = 1; index <= count; index++)
      cluster.servers.push(await FakeServer.start(cluster, `s${index}`));
    return cluster;
  }

  get urls(): string[] {
    return this.servers.map((server) => server.url);
  }

  async stop(): Promise<void> {
    await Promise.all(this.servers.map((server) => server.stop()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  server(index: number): FakeServer {
    return this.servers[index] as FakeServer;
  }

  /**
   * Creates an unlinked file with these contents.
   * @returns its number
   */
  addFile(contents: string): number {
    const inode = this.#create('file', 'v', 0o644);
    inode.contents = Buffer.from(contents);
    return inode.attributes.inode;
  }

  contents(file: number): string {
    return this.#inode(file).contents.toString();
  }

  handle(request: SeenRequest): unknown {
    const { method, path, search, body } = request;
    if (path === '/livez' || path === '/readyz') return {};
    if (path === '/v1/status') return this.#status();
    if (path === '/v1/catalog/commands') return this.#once(JSON.parse(body.toString()) as CommandRequest);
    if (path === '/v1/catalog/flush') return { missing: [] };
    if (path === '/v1/catalog/queries')
      return this.#query((JSON.parse(body.toString()) as { query: Query }).query);
    const info = /^\/v1\/info\/([^/]+)(\/.*)$/.exec(path);
    if (info !== null) return this.#info(info[1] as string, decodeURIComponent(info[2] as string));
    const data = /^\/v1\/data\/(\d+)(?:\/(\w+))?$/.exec(path);
    if (data === null) throw new ServiceError('not-found', `no route ${method} ${path}`);
    return this.#data(method, Number(data[1]), data[2], search, body);
  }

  #data(
    method: string,
    file: number,
    action: string | undefined,
    search: URLSearchParams,
    body: Buffer,
  ): unknown {
    const inode = this.#inode(file);
    if (method === 'GET' && action === undefined) {
      const offset = Number(search.get('offset'));
      return inode.contents.subarray(offset, offset + Number(search.get('length')));
    }
    if (action === 'state' || action === 'flush' || action === 'settle') return this.#state(inode);
    if (action === 'locks') {
      const { primary, epoch } = this.#state(inode);
      return { primary, epoch, locks: [], waiting: 2, graceMs: 0 } satisfies LockList;
    }
    const key = `${search.get('session')}/${search.get('number')}`;
    return this.#remember(key, () => {
      const at = search.get('offset');
      const offset = at === 'append' ? inode.contents.length : Number(at ?? 0);
      if (action === 'truncate') {
        const next = Buffer.alloc(Number(search.get('size')));
        inode.contents.copy(next);
        inode.contents = next;
      } else {
        const next = Buffer.alloc(Math.max(inode.contents.length, offset + body.length));
        inode.contents.copy(next);
        body.copy(next, offset);
        inode.contents = next;
      }
      inode.seq++;
      return { ...this.#state(inode), offset } satisfies WriteResult;
    });
  }

  #remember(key: string, execute: () => unknown): unknown {
    if (!this.#answers.has(key)) {
      this.executed++;
      this.#answers.set(key, execute());
    }
    return this.#answers.get(key);
  }

  #once({ session, number, command }: CommandRequest): unknown {
    return this.#remember(`${session}/${number}`, () => this.#command(command));
  }

  #command(command: Command): unknown {
    switch (command.kind) {
      case 'volume-create':
        return { volume: this.#createVolume(command, this.#nextInode++) };
      case 'catalog-create': {
        const { name } = command;
        const number = this.catalogs.length + 1;
        this.#createVolume(command, inodesOf(number as CatalogNumber).first);
        const row = { number, name, state: 'ready', members: ['s1', 's2', 's3'] } as const;
        this.catalogs.push({ ...row, primary: 's2' });
        return { catalog: row };
      }
      case 'server-state':
        return { server: this.listed.find(({ id }) => id === command.id) };
      case 'volume-remove':
        this.#volume(command.name);
        this.#volumes.delete(command.name);
        return {};
      case 'create-orphan':
        this.#volume(command.volume);
        return { attributes: this.#create('file', command.volume, command.mode).attributes };
      case 'keep-orphan':
        return {};
      case 'replace': {
        const { directory, name } = this.#spot(command.place);
        const old = directory.get(name);
        if (command.expect.kind === 'nothing' && old !== undefined) {
          throw new ServiceError('precondition-failed', 'there is something');
        }
        directory.set(name, command.inode);
        const inode = this.#inode(command.inode);
        const contents = { epoch: 1, seq: inode.seq };
        inode.attributes = { ...inode.attributes, sizeBytes: inode.contents.length, contents };
        return { attributes: inode.attributes, replaced: old ?? null };
      }
      case 'make-directory': {
        const { directory, name, volume } = this.#spot(command.place);
        if (directory.has(name)) throw new ServiceError('exists', 'the name is taken');
        const { attributes } = this.#create('directory', volume, command.mode);
        directory.set(name, attributes.inode);
        return { attributes };
      }
      case 'unlink':
      case 'remove-directory': {
        const { directory, name } = this.#spot(command.place);
        const inode = directory.get(name);
        if (inode === undefined) throw new ServiceError('not-found', 'nothing is there');
        if ((this.#children.get(inode)?.size ?? 0) > 0)
          throw new ServiceError('not-empty', 'it is not empty');
        directory.delete(name);
        return { inode, links: 0 };
      }
      case 'rename': {
        const from = this.#spot(command.from);
        const to = this.#spot(command.to);
        const inode = from.directory.get(from.name);
        if (inode === undefined) throw new ServiceError('not-found', 'nothing is there');
        const replaced = to.directory.get(to.name) ?? null;
        if (replaced !== null && command.mode === 'no-replace')
          throw new ServiceError('exists', 'it is taken');
        from.directory.delete(from.name);
        to.directory.set(to.name, inode);
        return { replaced };
      }
      default:
        throw new ServiceError('bad-request', `the fake has no ${command.kind}`);
    }
  }

  #createVolume(
    command: CommandOf<'volume-create'> | CommandOf<'catalog-create'>,
    rootInode: number,
  ): VolumeInfo {
    const { name, replicas, objectBytes, policy = 'quorum' } = command;
    if (this.#volumes.has(name)) throw new ServiceError('exists', 'the volume exists');
    const root = this.#create('directory', name, 0o755, rootInode).attributes.inode;
    const counts = { inodes: 1, usedBytes: 0, namedInodes: 1, namedBytes: 0 };
    const { quotaBytes = 0, quotaInodes = 0, trashMs = 0 } = command;
    const quotas = { quotaBytes, quotaInodes, trashMs, trashedBytes: 0, trashedInodes: 0 };
    const volume = { name, root, replicas, policy, objectBytes, ...counts, ...quotas };
    this.#volumes.set(name, volume);
    return volume;
  }

  #query(query: Query): unknown {
    switch (query.kind) {
      case 'servers':
        return { servers: this.listed, ...this.#missing() };
      case 'volumes': {
        const all = [...this.#volumes.values()];
        return { volumes: all.filter(({ name }) => !this.unavailable.includes(name)), ...this.#missing() };
      }
      case 'volume':
        return { volume: this.#volume(query.name) };
      case 'resolve':
        return { attributes: this.#resolve(query.volume, query.path) };
      case 'list': {
        const children = [...(this.#children.get(query.inode) ?? [])].sort();
        const rest = children.filter(([name]) => name > query.after);
        const entries = rest.slice(0, query.countMax).map(([name, inode]) => ({
          name,
          attributes: this.#inode(inode).attributes,
        }));
        return { entries, more: entries.length < rest.length };
      }
      default:
        throw new ServiceError('bad-request', `the fake has no ${query.kind}`);
    }
  }

  #missing(): object {
    return this.unavailable.length === 0 ? {} : { unavailable: this.unavailable };
  }

  #resolve(volume: string, path: string): Attributes {
    let at = this.#volume(volume).root;
    for (const name of path.split('/').filter((segment) => segment !== '')) {
      const next = this.#children.get(at)?.get(name);
      if (next === undefined) throw new ServiceError('not-found', `there is no ${path}`);
      at = next;
    }
    return this.#inode(at).attributes;
  }

  #spot(place: { parent: number; name: string } | { volume: string; path: string }) {
    if ('parent' in place) {
      const directory = this.#children.get(place.parent);
      if (directory === undefined) throw new ServiceError('not-directory', 'no directory');
      return { directory, name: place.name, volume: this.#inode(place.parent).attributes.volume };
    }
    const segments = place.path.split('/').filter((segment) => segment !== '');
    const name = segments.pop() ?? '';
    const parent = this.#resolve(place.volume, segments.join('/'));
    const directory = this.#children.get(parent.inode);
    if (directory === undefined) throw new ServiceError('not-directory', 'no directory');
    return { directory, name, volume: place.volume };
  }

  #volume(name: string): VolumeInfo {
    const volume = this.#volumes.get(name);
    if (volume === undefined) throw new ServiceError('not-found', `There is no volume "${name}"`);
    return volume;
  }

  #inode(number: number): FakeInode {
    const inode = this.#inodes.get(number);
    if (inode === undefined) throw new ServiceError('not-found', `There is no inode ${number}`);
    return inode;
  }

  #create(
    kind: Attributes['kind'],
    volume: string,
    mode: number,
    inode: number = this.#nextInode++,
  ): FakeInode {
    const attributes: Attributes = {
      inode,
      volume,
      kind,
      mode,
      uid: 0,
      gid: 0,
      links: 1,
      sizeBytes: 0,
      accessedNs: '0',
      modifiedNs: '1700000000000000000',
      changedNs: '1700000000000000000',
      target: '',
      device: 0,
      replicas: kind === 'file' ? ['s1', 's2', 's3'] : [],
      view: 1,
      objectBytes: 131_072,
      contents: { epoch: 0, seq: 0 },
      live: false,
    };
    const created = { attributes, contents: Buffer.alloc(0), seq: 0 };
    this.#inodes.set(inode, created);
    if (kind === 'directory') this.#children.set(inode, new Map());
    return created;
  }

  #state(inode: FakeInode): FileState {
    return {
      file: inode.attributes.inode,
      sizeBytes: inode.contents.length,
      modifiedNs: '1700000000000000000',
      contents: { epoch: 1, seq: inode.seq },
      seq: inode.seq,
      primary: this.primary,
      epoch: 1,
    };
  }

  #info(volume: string, path: string): FileInfo {
    const attributes = this.#resolve(volume, path);
    return {
      file: attributes.inode,
      volume,
      path,
      attributes,
      size: attributes.sizeBytes,
      etag: '"1-1-1"',
      view: { number: 1, members: ['s1', 's2', 's3'] },
      primary: this.primary,
      epoch: 1,
      lease: { holder: this.primary, remainingMs: 1500 },
      replicas: [
        {
          server: 's1',
          role: 'primary',
          state: 'current',
          version: 1,
          reachable: true,
          lagOperations: 0,
          lagBytes: 0,
        },
      ],
    };
  }

  #status(): unknown {
    return {
      verdict: this.verdict,
      reasons: this.verdict === 'healthy' ? [] : ['s3 is unreachable'],
      cluster: 'fake',
      catalog: { primary: 's1', epoch: 1, seq: 1, members: ['s1', 's2', 's3'] },
      catalogs: this.catalogs,
      timing: { leaseMs: 2000, clockSkewMaxMs: 100 },
      servers: this.servers.map((server) => server.selfStatus()),
      underReplicated: [],
      lag: { files: 0, versions: 0, bytes: 0 },
    };
  }
}

export class FakeServer {
  readonly id: string;
  readonly #cluster: FakeCluster;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #port = 0;
  readonly seen: SeenRequest[] = [];
  /** How many health checks it received. */
  livez = 0;
  /** Of these, how many were open at the same time. */
  livezAtOnceMax = 0;
  /** Bytes that were sent one by one. */
  trickled = 0;
  /** Called with each of these queries, before it is answered. */
  onLivez: () => void = () => undefined;
  #livezMuted = false;
  #livezOpen = 0;
  #muted: PromiseWithResolvers<void> | null = null;
  /** Free space of its disk. */
  room = { freeBytes: 1e9, totalBytes: 2e9 };
  /** Called with every request but those for health and server ids; null means: answer properly. */
  intercept: (request: SeenRequest) => Reaction | null = () => null;

  private constructor(cluster: FakeCluster, id: string) {
    this.#cluster = cluster;
    this.id = id;
    this.#server = createServer((request, response) => {
      this.#serve(request, response).catch((error: unknown) => {
        // A killed client, or this server's own end, in the middle of a request.
        if (!request.destroyed || request.complete) throw error;
      });
    });
    this.#server.on('connection', (socket) => {
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
    });
  }

  static async start(cluster: FakeCluster, id: string): Promise<FakeServer> {
    const server = new FakeServer(cluster, id);
    await server.listen();
    return server;
  }

  async listen(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(this.#port, '127.0.0.1', resolve));
    this.#port = (this.#server.address() as AddressInfo).port;
  }

  /** As if its process were killed: connections break, and new ones are refused. */
  async stop(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.speak();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  /** As if its process were stopped: connections are accepted, and no request is answered. */
  mute(): void {
    this.#muted ??= Promise.withResolvers<void>();
  }

  /** Only health checks are not answered. */
  muteLivez(): void {
    this.#livezMuted = true;
  }

  /** As if its process continued: requests that arrived meanwhile are handled now. */
  speak(): void {
    this.#muted?.resolve();
    this.#muted = null;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** Requests for files and the catalog, without those for health and server ids. */
  get asked(): number {
    return this.seen.length;
  }

  selfStatus() {
    const { id, url } = this;
    const common = {
      reachable: true,
      state: 'serving',
      recoveringMs: 0,
      primaries: 1,
      backups: 2,
      replicas: 3,
    };
    const process = { pid: 1, uptimeMs: 1000 };
    return { id, url, ...common, ...this.room, ...process, underReplicated: [], clockOffsets: {} };
  }

  async #serve(message: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of message) chunks.push(chunk as Buffer);
    const url = new URL(message.url ?? '/', this.url);
    const request = {
      method: message.method ?? '',
      path: url.pathname,
      search: url.searchParams,
      headers: message.headers,
      body: Buffer.concat(chunks),
    };
    if (request.path === '/livez') {
      this.livez++;
      this.livezAtOnceMax = Math.max(this.livezAtOnceMax, ++this.#livezOpen);
      message.socket.once('close', () => this.#livezOpen--);
      this.onLivez();
      if (this.#livezMuted) return;
    }
    if (this.#muted !== null) await this.#muted.promise;
    if (request.path === '/v1/status/self') return void response.end(JSON.stringify(this.selfStatus()));
    const reaction = request.path === '/livez' ? null : this.#react(request);
    if (reaction?.kind === 'wait') await reaction.until;
    else if (reaction !== null && reaction.kind !== 'trickle')
      return this.#misbehave(reaction, request, response);
    try {
      const answer = this.#cluster.handle(request);
      response.setHeader('leasehold-primary', this.#cluster.primary);
      if (reaction?.kind === 'trickle')
        return await this.#trickle(answer as Buffer, response, reaction.until);
      if (Buffer.isBuffer(answer)) response.setHeader('content-type', 'application/octet-stream').end(answer);
      else response.setHeader('content-type', 'application/json').end(JSON.stringify(answer));
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      this.#problem(response, error.code, error.message);
    }
  }

  #react(request: SeenRequest): Reaction | null {
    this.seen.push(request);
    return this.intercept(request);
  }

  #misbehave(
    reaction: Exclude<Reaction, { kind: 'wait' | 'trickle' }>,
    request: SeenRequest,
    response: ServerResponse,
  ): void {
    switch (reaction.kind) {
      case 'problem':
        this.#problem(response, reaction.code, `fake ${reaction.code}`, reaction.headers, reaction.extra);
        break;
      case 'answer':
        response.writeHead(reaction.status, reaction.headers).end(reaction.text);
        break;
      case 'execute-and-cut':
        this.#cluster.handle(request);
        response.socket?.destroy();
        break;
      case 'cut':
        response.socket?.destroy();
        break;
      case 'hang':
        break;
    }
  }

  async #trickle(bytes: Buffer, response: ServerResponse, until: Promise<void>): Promise<void> {
    let over = false;
    void until.then(() => {
      over = true;
    });
    response.setHeader('content-length', bytes.length);
    let sent = 0;
    while (!over && sent < bytes.length / 2) {
      response.write(bytes.subarray(sent, ++sent));
      this.trickled++;
      await delay(TRICKLE_MS);
    }
    response.end(bytes.subarray(sent));
  }

  #problem(response: ServerResponse, code: ErrorCode, detail: string, headers = {}, extra = {}): void {
    const { status, title } = ERRORS[code];
    response.writeHead(status, { 'content-type': 'application/problem+json', ...headers });
    response.end(JSON.stringify({ type: 'about:blank', title, status, detail, code, ...extra }));
  }
}
