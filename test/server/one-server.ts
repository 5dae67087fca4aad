import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { freePorts } from '../../client/dev/free-ports.ts';
import { readConfig } from '../../server/config.ts';
import { Server } from '../../server/server.ts';
import { systemWorld } from '../../world/system-world.ts';

/** A cluster of one server in this process, without TLS. */
export class OneServer {
  readonly url: string;
  readonly #server: Server;
  readonly #folder: string;

  private constructor(url: string, server: Server, folder: string) {
    this.url = url;
    this.#server = server;
    this.#folder = folder;
  }

  static async start(flags: readonly string[] = []): Promise<OneServer> {
    const [port] = await freePorts(1);
    const folder = mkdtempSync(join(tmpdir(), 'leasehold-one-'));
    const own = ['--id', 's1', '--peer', `s1=127.0.0.1:${port}`, '--data', folder, '--lease', '1s'];
    const config = readConfig([...own, '--clock-skew', '100ms', ...flags], {}, () => '');
    const server = await Server.start(config, {
      world: systemWorld,
      log: pino({ level: 'silent' }),
      fatal: (error) => {
        throw error;
      },
    });
    return new OneServer(`http://127.0.0.1:${port}`, server, folder);
  }

  async stop(): Promise<void> {
    await this.#server.stop();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
