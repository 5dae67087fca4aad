import { Agent, type Dispatcher, request } from '../../http-parts/undici.ts';
import type { Access } from '../access.ts';

/** So long one question is waited for. */
export const ANSWER_MS = 5_000;

/** How the doctor asks servers: as any client does, and one question at a time without a second attempt. */
export class Asking {
  readonly #agent: Agent;
  readonly #access: Access;

  constructor(access: Access) {
    this.#access = access;
    this.#agent = new Agent({ connect: { ...access.tls } });
  }

  /** @throws Error where nothing comes in time */
  get(url: string): Promise<Dispatcher.ResponseData> {
    const headers = this.#access.allows(new URL(url)) ? (this.#access.headers ?? {}) : {};
    return request(url, { dispatcher: this.#agent, headers, signal: AbortSignal.timeout(ANSWER_MS) });
  }

  async close(): Promise<void> {
    await this.#agent.destroy();
  }
}
