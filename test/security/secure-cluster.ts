import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Logger, pino } from 'pino';
import { freePorts } from '../../client/dev/free-ports.ts';
import { readConfig } from '../../server/config/config.ts';
import { Server } from '../../server/server.ts';
import { systemWorld } from '../../world/system-world.ts';
import { TestAuthority } from './authority.ts';

/** One line of a server's log. */
export type LogLine = Readonly<Record<string, unknown>> & { readonly msg: string };

/** Whole servers in this process, on loopback, with TLS: all that an unauthenticated client meets, and their logs. */
export class SecureCluster {
  readonly authority: TestAuthority;
  readonly folder: string;
  readonly ports: ReadonlyMap<string, number>;
  readonly servers = new Map<string, Server>();
  /** All lines that servers have logged, unchanged. */
  readonly log: string[] = [];
  readonly #flags: readonly string[];

  private constructor(
    authority: TestAuthority,
    folder: string,
    ports: ReadonlyMap<string, number>,
    flags: readonly string[],
  ) {
    this.authority = authority;
    this.folder = folder;
    this.ports = ports;
    this.#flags = flags;
  }

  static async start(
    options: {
      readonly servers?: number;
      readonly flags?: (authority: TestAuthority) => readonly string[];
    } = {},
  ): Promise<SecureCluster> {
    const authority = await TestAuthority.create();
    const folder = mkdtempSync(join(tmpdir(), 'leasehold-secure-'));
    const ids = Array.from({ length: options.servers ?? 3 }, (_, place) => `s${place + 1}`);
    const free = await freePorts(ids.length);
    const ports = new Map(ids.map((id, place) => [id, free[place] as number]));
    const cluster = new SecureCluster(authority, folder, ports, options.flags?.(authority) ?? []);
    try {
      for (const id of ids) await authority.server(id);
      await Promise.all(ids.map((id) => cluster.begin(id)));
      return cluster;
    } catch (error) {
      await cluster.stop();
      throw error;
    }
  }

  get urls(): string[] {
    return [...this.ports.keys()].map((id) => this.url(id));
  }

  url(id: string): string {
    return `https://127.0.0.1:${this.ports.get(id)}`;
  }

  server(id: string): Server {
    return this.servers.get(id) as Server;
  }

  /** Lines that satisfy `wanted`. */
  lines(wanted: (line: LogLine) => boolean): LogLine[] {
    return this.log.map((text) => JSON.parse(text) as LogLine).filter(wanted);
  }

  /** @returns the command line of `leasehold server` for it */
  flags(id: string): string[] {
    const { folder, ca } = this.authority;
    return [
      ...['--id', id, '--data', join(this.folder, id), '--lease', '1s', '--clock-skew', '100ms'],
      ...[...this.ports].flatMap(([peer, port]) => ['--peer', `${peer}=127.0.0.1:${port}`]),
      ...[
        '--tls-cert',
        join(folder, `${id}.pem`),
        '--tls-key',
        join(folder, `${id}-key.pem`),
        '--tls-ca',
        ca,
      ],
      ...this.#flags,
    ];
  }

  begin(id: string): Promise<Server> {
    return this.#start(id, this.flags(id));
  }

  async #start(id: string, flags: readonly string[]): Promise<Server> {
    const server = await Server.start(
      readConfig(flags, {}, () => ''),
      {
        world: systemWorld,
        log: this.#logger(id),
        fatal: (error) => {
          throw error;
        },
      },
    );
    this.servers.set(id, server);
    return server;
  }

  /** Starts a server that joins the running cluster by itself. */
  async join(id: string): Promise<void> {
    const { folder, ca } = this.authority;
    const [port] = await freePorts(1);
    const flags = [
      ...['--id', id, '--join', this.urls.join(','), '--listen', `127.0.0.1:${port}`],
      ...['--data', join(this.folder, id), '--lease', '1s', '--clock-skew', '100ms'],
      ...[
        '--tls-cert',
        join(folder, `${id}.pem`),
        '--tls-key',
        join(folder, `${id}-key.pem`),
        '--tls-ca',
        ca,
      ],
      ...this.#flags,
    ];
    await this.#start(id, flags);
  }

  async stop(): Promise<void> {
    await Promise.all([...this.servers.values()].map((server) => server.stop()));
    rmSync(this.folder, { recursive: true, force: true });
    this.authority.remove();
  }

  #logger(id: string): Logger {
    return pino(
      { level: 'trace', base: { server: id } },
      { write: (line: string) => void this.log.push(line) },
    );
  }
}
