import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { freePorts } from '../../client/dev/free-ports.ts';
import { until } from '../cluster/real-cluster.ts';
import { LineClient } from './line-client.ts';

const PACKAGED = new URL('../../packaging/nfs-ganesha/ganesha.conf', import.meta.url);

/** NFS-Ganesha with the packaged configuration on a mount, and its clients. */
export class Ganesha {
  readonly #folder: string;
  readonly #ports: readonly number[];
  readonly #clients: LineClient[] = [];
  #child: ChildProcess | null = null;

  private constructor(folder: string, ports: readonly number[]) {
    this.#folder = join(folder, 'ganesha');
    this.#ports = ports;
  }

  static async start(folder: string, directory: string): Promise<Ganesha> {
    const gateway = new Ganesha(folder, await freePorts(3));
    mkdirSync(gateway.#folder);
    await gateway.restart(directory);
    return gateway;
  }

  /** Starts it, again if it runs. */
  async restart(directory: string): Promise<void> {
    await this.kill();
    const configuration = join(this.#folder, 'ganesha.conf');
    writeFileSync(configuration, this.#configuration(directory));
    const log = join(this.#folder, 'ganesha.log');
    rmSync(log, { force: true });
    const argv = ['-F', '-f', configuration, '-L', log, '-p', join(this.#folder, 'ganesha.pid')];
    const child = spawn('ganesha.nfsd', argv, { cwd: '/', stdio: 'ignore' });
    this.#child = child;
    await until('Ganesha serves', async () => {
      assert.equal(child.exitCode, null, readFileSync(log, 'utf8').slice(-2_000));
      const text = readFileSync(log, 'utf8');
      return text.includes('NFS SERVER INITIALIZED') && (await isListening(this.#ports[0] as number));
    });
  }

  #configuration(directory: string): string {
    const [nfs, mount, locks] = this.#ports;
    const packaged = readFileSync(PACKAGED, 'utf8');
    const replaced = [
      [/NFS_Port = 2049;/, `NFS_Port = ${nfs};\n\tBind_addr = 127.0.0.1;`],
      [/MNT_Port = 20048;/, `MNT_Port = ${mount};`],
      [/NLM_Port = 32803;/, `NLM_Port = ${locks};`],
      // libnfs cannot reclaim locks.
      [/Grace_Period = 45;/, 'Graceless = true;'],
      [/RecoveryBackend = fs;/, `RecoveryBackend = fs;\n\tRecoveryRoot = ${this.#folder};`],
      [/Path = \/mnt\/main;/, `Path = ${directory};`],
    ] as const;
    let text = packaged;
    for (const [from, to] of replaced) {
      assert.match(text, from);
      text = text.replace(from, to);
    }
    const own = text.slice(text.indexOf('\nEXPORT {'));
    const closed = own
      .replace('Export_Id = 1;', 'Export_Id = 2;')
      .replace('Pseudo = /main;', 'Pseudo = /closed;')
      .replace('Clients = 127.0.0.1;', 'Clients = 192.0.2.1;');
    return `${text}\n${closed}`;
  }

  async client(path: string, user: number, version = 4): Promise<LineClient> {
    const [nfs, mount] = this.#ports;
    const how = `version=${version}&nfsport=${nfs}&mountport=${mount}&uid=${user}&gid=${user}`;
    const client = new LineClient('python3', 'nfs-client.py');
    this.#clients.push(client);
    await client.call('connect', `nfs://127.0.0.1${path}?${how}`);
    return client;
  }

  /** Ends it as a power failure does. */
  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = null;
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  }

  async stop(): Promise<void> {
    for (const client of this.#clients) client.stop();
    await this.kill();
  }
}

export function isListening(port: number): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const socket = connect(port, '127.0.0.1', () => resolve(true));
  socket.on('error', () => resolve(false));
  return promise.finally(() => socket.destroy());
}

/** Starts rpcbind, at which Ganesha registers NFS 3, unless it runs. */
export async function portmapper(): Promise<{ kill(): void }> {
  if (await isListening(111)) return { kill: () => undefined };
  const child = spawn('rpcbind', ['-f'], { stdio: 'ignore' });
  await until('rpcbind serves', () => isListening(111));
  return child;
}
