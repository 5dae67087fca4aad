import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { freePorts } from '../../client/dev/free-ports.ts';
import { readConfig } from '../../server/config/config.ts';
import { Server } from '../../server/server.ts';
import { patientWorld } from '../patient-world.ts';

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

  /** Leaves the data to a later start. */
  async end(): Promise<void> {
    await this.#server.stop();
  }

  async stop(): Promise<void> {
    await this.end();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

function emptyFolder(): string {
  return mkdtempSync(join(tmpdir(), 'leasehold-one-'));
}
