import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { freePorts } from '../../client/dev/free-ports.ts';
import { readConfig } from '../../server/config/config.ts';
import { Server } from '../../server/server.ts';
import type { Command, CommandResults, Query, QueryResults } from '../../wire/catalog-api.ts';
import type { CatalogState } from '../../wire/volume-catalogs.ts';
import { patientWorld } from '../patient-world.ts';

/** Of all servers, also over restarts. */
let sessions = 0;

/** A cluster of one server in this process, without TLS. */
export class OneServer {
  readonly url: string;
  /** Its data. */
  readonly folder: string;
  readonly #server: Server;

  private constructor(url: string, server: Server, folder: string) {
    this.url = url;
    this.folder = folder;
    this.#server = server;
  }

  /** @param folder of an earlier server; an empty one by default */
  static async start(flags: readonly string[] = [], folder = emptyFolder()): Promise<OneServer> {
    const [port] = await freePorts(1);
    const own = ['--id', 's1', '--peer', `s1=127.0.0.1:${port}`, '--data', folder, '--lease', '1s'];
    const config = readConfig([...own, '--clock-skew', '100ms', ...flags], {}, () => '');
    const server = await Server.start(config, {
      world: patientWorld,
      log: pino({ level: 'silent' }),
      fatal: (error) => {
        throw error;
      },
    });
    return new OneServer(`http://127.0.0.1:${port}`, server, folder);
  }

  async request(path: string, options?: RequestInit): Promise<string> {
    const response = await fetch(`${this.url}${path}`, options);
    const text = await response.text();
    assert.ok(response.ok, `${path}: ${text}`);
    return text;
  }

  async #post<Result>(path: string, body: unknown): Promise<Result> {
    const headers = { 'content-type': 'application/json' };
    return JSON.parse(await this.request(path, { method: 'POST', headers, body: JSON.stringify(body) }));
  }

  /** Executes a command, as the only one of its session. */
  execute<C extends Command>(command: C): Promise<CommandResults[C['kind']]> {
    return this.#post('/v1/catalog/commands', { session: ++sessions, number: 1, command });
  }

  query<Q extends Query>(query: Q): Promise<QueryResults[Q['kind']]> {
    return this.#post('/v1/catalog/queries', { query });
  }

  /** Resolves once the catalog knows the server. */
  async registered(): Promise<void> {
    await until(async () => (await this.query({ kind: 'servers', counts: false })).servers.length > 0);
  }

  /** Resolves once the first volume with a catalog of its own has it in that state. */
  async hasCatalog(state: CatalogState): Promise<void> {
    await until(async () => (await this.query({ kind: 'catalogs' })).catalogs[0]?.state === state);
  }

  /** Leaves the data to a later start. */
  async end(): Promise<void> {
    await this.#server.stop();
  }

  async stop(): Promise<void> {
    await this.end();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** The test's own limit ends it. */
export async function until(isSo: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await isSo())) await patientWorld.sleep(20);
}

function emptyFolder(): string {
  return mkdtempSync(join(tmpdir(), 'leasehold-one-'));
}
