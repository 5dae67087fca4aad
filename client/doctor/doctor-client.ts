import { Agent, type Dispatcher, request } from '../../platform/undici.ts';
import type { ClusterStatus, ServerStatus } from '../../wire/http-api.ts';
import { parseJsonObject } from '../../wire/json.ts';
import { systemWorld } from '../../world/system-world.ts';
import type { Access } from '../transport/access.ts';

export const ANSWER_MS = 5_000;

/** Requests of the doctor: each once, without a retry. */
export class DoctorClient {
  readonly #agent: Agent;
  readonly #access: Access;

  constructor(access: Access) {
    this.#access = access;
    this.#agent = new Agent({ connect: { ...access.tls } });
  }

  get(url: string): Promise<Dispatcher.ResponseData> {
    const headers = this.#access.allows(new URL(url)) ? (this.#access.headers ?? {}) : {};
    return request(url, { dispatcher: this.#agent, headers, signal: systemWorld.timeout(ANSWER_MS) });
  }

  async close(): Promise<void> {
    await this.#agent.destroy();
  }
}

/** @returns the servers at `urls`, followed by the others that they know */
export async function allServers(urls: readonly string[], access: Access): Promise<string[]> {
  const client = new DoctorClient(access);
  try {
    const reports = await Promise.all(
      urls.map((url) => answerOf<ServerStatus>(client, `${url}/v1/status/self`)),
    );
    const ids = new Set(reports.map((status) => status?.id));
    const first = reports.findIndex((status) => status !== null);
    const status = first < 0 ? null : await answerOf<ClusterStatus>(client, `${urls[first]}/v1/status`);
    const others = (status?.servers ?? []).filter(({ id }) => !ids.has(id)).map(({ url }) => url);
    return [...new Set([...urls, ...others])];
  } finally {
    await client.close();
  }
}

/** Requests JSON. @returns null without a good answer, which other checks explain */
async function answerOf<Value>(client: DoctorClient, url: string): Promise<Value | null> {
  try {
    const response = await client.get(url);
    const value = parseJsonObject(await response.body.text());
    return response.statusCode === 200 ? (value as Value | null) : null;
  } catch {
    return null;
  }
}
