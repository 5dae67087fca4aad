import { randomInt } from 'node:crypto';
import type { Pool } from 'undici';
import type { FileState } from '../../wire/http-api.ts';
import type { ReplicaCluster } from './replica-cluster.ts';

const SESSION_MAX = 2 ** 48 - 1;

/** The answer to one attempt, or that there was none. */
export type Answer =
  | { readonly kind: 'acknowledged'; readonly state: FileState }
  /** The server cannot answer now; it may name another one. */
  | {
      readonly kind: 'refused';
      readonly status: number;
      readonly primary: string | null;
      readonly text: string;
    }
  | { readonly kind: 'silent'; readonly cause: Error };

/** Numbered writes to one file, as any client makes them, but without retries: these are up to the caller. */
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

  /** The number of the next write, which all its attempts share. */
  next(): number {
    this.#number += 1;
    return this.#number;
  }

  /** Makes one attempt of a write. All earlier writes must have been answered. */
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

  /** Makes one write at a server that is the primary. @throws Error if it is not acknowledged */
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
