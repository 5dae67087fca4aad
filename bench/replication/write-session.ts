import { randomInt } from 'node:crypto';
import type { Pool } from 'undici';
import type { FileState } from '../../wire/http-api.ts';
import type { ReplicaCluster } from './replica-cluster.ts';

const SESSION_MAX = 2 ** 48 - 1;

/** What a server said to one attempt, or that it said nothing. */
export type Answer =
  | { readonly kind: 'acknowledged'; readonly state: FileState }
  /** Not now or not here; perhaps it names who is to be asked. */
  | {
      readonly kind: 'refused';
      readonly status: number;
      readonly primary: string | null;
      readonly text: string;
    }
  | { readonly kind: 'silent'; readonly cause: Error };

/** Numbered writes to one file, as any client makes them, without a client's patience: what is tried again is up to the caller. */
export class WriteSession {
  readonly #file: number;
  readonly #session = randomInt(1, SESSION_MAX);
  readonly #since: number;
  #number = 0;

  private constructor(file: number, since: number) {
    this.#file = file;
    this.#since = since;
  }

  static async begin(servers: ReplicaCluster, file: number): Promise<WriteSession> {
    const state = await servers.client.openFile(file).state();
    return new WriteSession(file, state.seq);
  }

  /** The number of the next write, by which all attempts of it are one. */
  next(): number {
    this.#number += 1;
    return this.#number;
  }

  /** Whoever tries a number has the answers to those before it. */
  async attempt(pool: Pool, number: number, offset: number, bytes: Uint8Array): Promise<Answer> {
    const path = `/v1/data/${this.#file}?offset=${offset}&session=${this.#session}&number=${number}&since=${this.#since}&answered=${number - 1}`;
    try {
      const response = await pool.request({ method: 'PUT', path, body: bytes });
      const text = await response.body.text();
      if (response.statusCode < 300) return { kind: 'acknowledged', state: JSON.parse(text) as FileState };
      const { primary } = JSON.parse(text) as { readonly primary?: string };
      return { kind: 'refused', status: response.statusCode, primary: primary ?? null, text };
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      return { kind: 'silent', cause: error };
    }
  }

  /** One write at a server that is known to be the primary. @throws Error where it is not acknowledged */
  async write(pool: Pool, offset: number, bytes: Uint8Array): Promise<FileState> {
    const answer = await this.attempt(pool, this.next(), offset, bytes);
    switch (answer.kind) {
      case 'acknowledged':
        return answer.state;
      case 'refused':
        throw new Error(`A write was refused: ${answer.text}`);
      case 'silent':
        throw new Error('A write was not answered', { cause: answer.cause });
    }
  }
}
