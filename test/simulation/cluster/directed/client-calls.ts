import assert from 'node:assert/strict';
import { ServiceError } from '../../../../base/errors.ts';
import { ROOT_CATALOG, type ServerId } from '../../../../base/ids.ts';
import type { ClusterClient } from '../../../../client/cluster/cluster-client.ts';
import type { FileHandle } from '../../../../client/cluster/file-handle.ts';
import type { ChannelAnswer, HttpChannel } from '../../../../platform/http-channel.ts';
import { INODE_FLAGS, type InodeFlag } from '../../../../wire/inode-flags.ts';
import { parseRetention } from '../../../../wire/retention.ts';
import { createFile, textOf } from '../workloads/parts.ts';
import { attachmentCalls } from './attachment-calls.ts';
import type { Caller, CallOutcome } from './stage.ts';

/** A call without a value returns an empty one. */
export type Calls = Readonly<Record<string, (...words: string[]) => Promise<unknown>>>;

/** https://tus.io */
const TUS = { 'tus-resumable': '1.0.0' };

const MOVED_CHECK_MS = 50;

/** A program with a client library, which also sends single REST requests. */
export class ClientCalls implements Caller {
  readonly #client: ClusterClient;
  readonly #volume: string;
  readonly #channel: (server: string) => HttpChannel;
  readonly #serverId: (name: string) => string;
  readonly #volumeCreate: 'volume-create' | 'catalog-create';
  readonly #files = new Map<string, FileHandle>();
  /** The paths of uploads; all programs know them. */
  readonly #uploads: Map<string, string>;
  readonly #calls: Calls;

  constructor(
    client: ClusterClient,
    volume: string,
    uploads: Map<string, string>,
    channel: (server: string) => HttpChannel,
    serverId: (name: string) => string,
    volumeCreate: 'volume-create' | 'catalog-create',
  ) {
    this.#client = client;
    this.#volume = volume;
    this.#uploads = uploads;
    this.#channel = channel;
    this.#serverId = serverId;
    this.#volumeCreate = volumeCreate;
    this.#calls = this.#table();
  }

  async call(call: string, ...values: string[]): Promise<CallOutcome> {
    const run = this.#calls[call];
    if (run === undefined) return { errno: `${call} is none of ${Object.keys(this.#calls).join(', ')}` };
    try {
      const value = await run(...values);
      return { value: typeof value === 'string' ? value : '' };
    } catch (error) {
      if (error instanceof ServiceError) return { errno: error.code };
      // A broken connection.
      if (error instanceof Error && 'code' in error) return { errno: String(error.code) };
      throw error;
    }
  }

  #table(): Calls {
    const file = (name: string): FileHandle => {
      const handle = this.#files.get(name);
      if (handle === undefined) throw new ServiceError('bad-request', `There is no open file "${name}"`);
      return handle;
    };
    const set = (change: { readonly policy?: 'quorum'; readonly quotaBytes?: number }) =>
      this.#client.command({ kind: 'volume-set', name: this.#volume, ...change });
    const ask = async (server: string, query: object): Promise<unknown> => {
      const headers = { 'content-type': 'application/json' };
      const body = JSON.stringify({ query });
      const answer = await this.#request(server, 'POST', '/v1/catalog/queries', body, headers);
      return JSON.parse(await answer.body.text());
    };
    return {
      ...attachmentCalls(this.#client, this.#volume, ask),
      open: async (name = '', path = '') => {
        const { inode, replicas } = await this.#client.resolve(this.#volume, path);
        this.#files.set(name, this.#client.openFile(inode, { replicas }));
      },
      pread: (name = '', length = '', offset = '') => textOf(file(name), Number(offset), Number(length)),
      pwrite: (name = '', text = '', offset = '') =>
        file(name).write(Number(offset), Buffer.from(text, 'latin1')),
      flush: (name = '') => file(name).flush(),
      seal: (name = '') => file(name).seal(),
      /** `replicate /x s4`: adds a replica to the file */
      replicate: async (path = '', server = '') => {
        const { inode, replicas } = await this.#client.resolve(this.#volume, path);
        await this.#client.admin.changeMembers(inode, [...replicas, this.#serverId(server)] as ServerId[]);
      },
      /** `place /x s1 s2 s4`: makes these servers the file's members */
      place: async (path = '', ...servers: string[]) => {
        const { inode } = await this.#client.resolve(this.#volume, path);
        await this.#client.admin.changeMembers(inode, servers.map(this.#serverId) as ServerId[]);
      },
      /** `replicas s1`: returns how many replicas the server has, also those that it does not need */
      replicas: async (server = '') => {
        const { body } = await this.#request(server, 'GET', '/v1/check/self', '', {});
        return String((JSON.parse(await body.text()) as { readonly compared: number }).compared);
      },
      /** `trim s1 4`: the first rows of the server's log of deletions are lost */
      trim: (server = '', through = '') =>
        this.#client.command({
          kind: 'trim-deletions',
          server: this.#serverId(server),
          through: Number(through),
        }),
      drain: (server = '') =>
        this.#client.command({ kind: 'server-state', id: this.#serverId(server), state: 'draining' }),
      remove: (server = '') =>
        this.#client.command({ kind: 'server-remove', id: this.#serverId(server), dead: false }),
      /** `flags /x immutable`, `flags /x`: sets the file's flags */
      flags: async (path = '', ...set: string[]) => {
        const { inode } = await this.#client.resolve(this.#volume, path);
        const clear = INODE_FLAGS.filter((flag) => !set.includes(flag));
        await this.#client.command({ kind: 'set-flags', inode, set: set as InodeFlag[], clear });
      },
      /** `retain /x 30d`: retains the file */
      retain: async (path = '', time = '') => {
        const { inode } = await this.#client.resolve(this.#volume, path);
        const retain = parseRetention(time);
        assert.ok(retain !== null, `"${time}" is a date or a duration`);
        await this.#client.command({ kind: 'retain', inode, retain });
      },
      create: (path = '') => createFile(this.#client, { volume: this.#volume, path }, true, {}),
      /** `policy read-only`: of files that are created from now on */
      policy: (policy = '') => set({ policy: policy as 'quorum' }),
      'make-volume': (name = '') =>
        this.#client.command({ kind: this.#volumeCreate, name, replicas: 3, objectBytes: 4_096 }),
      /** The volume begins to move to a catalog of its own. */
      'move-volume': () => this.#client.command({ kind: 'volume-move', name: this.#volume }),
      /** `split /d name`: the directory begins to become a volume */
      split: (path = '', name = '') =>
        this.#client.command({ kind: 'volume-split', name, volume: this.#volume, path }),
      /** `split-done name`: waits until it is one; returns where it is attached, or that the split was ended */
      'split-done': async (name = '') => {
        const { world } = this.#client;
        for (;;) {
          const { catalogs } = await this.#client.query({ kind: 'catalogs' });
          const row = catalogs.findLast((one) => one.name === name);
          if (row?.state === 'removed') return 'ended';
          if (row?.state === 'ready') return 'ready';
          await world.sleep(MOVED_CHECK_MS);
        }
      },
      'abort-move': () => this.#client.command({ kind: 'volume-move-abort', name: this.#volume }),
      /** Waits until it is there. */
      moved: async () => {
        const { world } = this.#client;
        while ((await this.#client.catalogOfVolume(this.#volume)) === ROOT_CATALOG)
          await world.sleep(MOVED_CHECK_MS);
      },
      'remove-volume': (name = '') => this.#client.command({ kind: 'volume-remove', name }),
      snapshot: (name = '') => this.#client.command({ kind: 'snapshot-create', volume: this.#volume, name }),
      quota: (bytes = '') => set({ quotaBytes: Number(bytes) }),
      /** `usage namedBytes` */
      usage: async (what = '') => {
        const { volume } = await this.#client.query({ kind: 'volume', name: this.#volume });
        return String((volume as unknown as Readonly<Record<string, unknown>>)[what]);
      },
      /** `rest s1 PUT /x text header:value …`: returns the status, and the body of a GET */
      rest: async (server = '', method = '', path = '', body = '', ...headers: string[]) => {
        const named = headers.map((header) => header.split(/:(.*)/, 2) as [string, string]);
        const answer = await this.#request(server, method, path, body, Object.fromEntries(named));
        const text = method === 'GET' ? ` ${await answer.body.text()}` : '';
        return `${answer.statusCode}${text}`;
      },
      /** `upload u s1 /x 5`: begins a resumable upload of so many bytes */
      upload: async (name = '', server = '', path = '', length = '') => {
        const answer = await this.#request(server, 'POST', path, '', { ...TUS, 'upload-length': length });
        this.#uploads.set(name, String(answer.headers.location));
        return String(answer.statusCode);
      },
      /** `piece u s1 0 hello` */
      piece: async (name = '', server = '', offset = '', text = '') => {
        const headers = {
          ...TUS,
          'upload-offset': offset,
          'content-type': 'application/offset+octet-stream',
        };
        const answer = await this.#request(server, 'PATCH', this.#uploads.get(name) ?? '', text, headers);
        return String(answer.statusCode);
      },
      /** `find-upload u s1`: a complete upload gets its name, if it has none yet */
      'find-upload': async (name = '', server = '') => {
        const answer = await this.#request(server, 'HEAD', this.#uploads.get(name) ?? '', '', TUS);
        return String(answer.statusCode);
      },
    };
  }

  #request(
    server: string,
    method: string,
    path: string,
    text: string,
    headers: Readonly<Record<string, string>>,
  ): Promise<ChannelAnswer> {
    return this.#channel(server).request({
      ...{ method: method as 'GET', headers },
      path: path.startsWith('/v1/') ? path : `/v1/files/${this.#volume}${path}`,
      ...(text === '' || text === '-' ? {} : { body: Buffer.from(text, 'latin1') }),
    });
  }
}
