import { ServiceError } from '../../../../base/errors.ts';
import type { ClusterClient } from '../../../../client/cluster-client.ts';
import type { FileHandle } from '../../../../client/file-handle.ts';
import type { HttpChannel } from '../../../../http-parts/http-channel.ts';
import type { Caller, CallOutcome } from './stage.ts';

type Calls = Readonly<Record<string, (...words: string[]) => Promise<string>>>;

/** A program with a client library, which also sends single requests of REST. */
export class ClientCalls implements Caller {
  readonly #client: ClusterClient;
  readonly #volume: string;
  readonly #channel: (server: string) => HttpChannel;
  readonly #files = new Map<string, FileHandle>();
  readonly #calls: Calls;

  constructor(client: ClusterClient, volume: string, channel: (server: string) => HttpChannel) {
    this.#client = client;
    this.#volume = volume;
    this.#channel = channel;
    this.#calls = this.#table();
  }

  async call(call: string, ...values: string[]): Promise<CallOutcome> {
    const run = this.#calls[call];
    if (run === undefined) return { errno: `${call} is none of ${Object.keys(this.#calls).join(', ')}` };
    try {
      return { value: await run(...values) };
    } catch (error) {
      if (error instanceof ServiceError) return { errno: error.code };
      throw error;
    }
  }

  #table(): Calls {
    const file = (name: string): FileHandle => {
      const handle = this.#files.get(name);
      if (handle === undefined) throw new ServiceError('bad-request', `There is no open file "${name}"`);
      return handle;
    };
    return {
      open: async (name = '', path = '') => {
        const { inode, replicas } = await this.#client.resolve(this.#volume, path);
        this.#files.set(name, this.#client.openFile(inode, { replicas }));
        return '';
      },
      pread: async (name = '', length = '', offset = '') => {
        const { bytes } = await file(name).read(Number(offset), Number(length));
        return Buffer.from(bytes).toString('latin1');
      },
      pwrite: async (name = '', text = '', offset = '') => {
        await file(name).write(Number(offset), Buffer.from(text, 'latin1'));
        return '';
      },
      flush: async (name = '') => {
        await file(name).flush();
        return '';
      },
      /** `rest s1 PUT /x text header:value …`: status, and what a GET answers. */
      rest: async (server = '', method = '', path = '', body = '', ...headers: string[]) => {
        const { statusCode, body: answer } = await this.#channel(server).request({
          method: method as 'GET',
          path: path.startsWith('/v1/') ? path : `/v1/files/${this.#volume}${path}`,
          headers: Object.fromEntries(headers.map((header) => header.split(/:(.*)/, 2) as [string, string])),
          ...(body === '' || body === '-' ? {} : { body: Buffer.from(body, 'latin1') }),
        });
        const text = method === 'GET' ? ` ${await answer.text()}` : '';
        return `${statusCode}${text}`;
      },
    };
  }
}
