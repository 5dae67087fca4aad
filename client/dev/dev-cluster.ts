import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import { systemWorld } from '../../world/system-world.ts';
import { ClusterClient } from '../cluster/cluster-client.ts';
import { type Mounted, mountVolume } from '../mounts/mount-process.ts';
import { mountAt } from '../mounts/mount-table.ts';
import { unmountDirectory } from '../mounts/unmount.ts';
import { isSystemError, systemReason, usageFailure } from '../terminal/failure.ts';
import { Access, type AccessFiles } from '../transport/access.ts';
import { DevControl } from './dev-control.ts';
import { type ServerPlan, ServerProcess } from './server-process.ts';

const HOST = '127.0.0.1';
const CREDENTIALS = 'credentials';
const VOLUME_REPLICAS = 3;
const OBJECT_BYTES = 128 * 1024;
/** A server may first have to wait until leases that it has forgotten are over. */
const READY_TIMEOUT_MS = 60_000;
/** Short, since after every start named leases wait for it. */
const NAMED_LEASE_MAX_MS = 10_000;
const NAMED_LEASE_PER_SKEW_MIN = 10;

export interface DevClusterOptions {
  readonly ports: readonly number[];
  readonly data: string | null;
  readonly leaseMs: number;
  readonly clockSkewMs: number;
  readonly isSecure?: boolean;
  /** One for each server, or none: without S3. */
  readonly s3Ports?: readonly number[];
  readonly onUnexpectedEnd: (server: ServerProcess, how: string, servers: readonly ServerProcess[]) => void;
}

export interface ForeignServer {
  readonly id: string;
  readonly pid: number;
}

/** A whole cluster as child processes on this machine, with a volume `main`. */
export class DevCluster {
  static readonly VOLUME = 'main';
  readonly servers: readonly ServerProcess[];
  readonly client: ClusterClient;
  readonly options: DevClusterOptions;
  readonly control: DevControl;
  readonly credentials: string | null;
  readonly access: Access;
  readonly #folder: string;
  #mounted: Mounted | null = null;

  private constructor(options: DevClusterOptions, folder: string, control: DevControl) {
    this.control = control;
    this.options = options;
    this.#folder = folder;
    this.credentials = options.isSecure === true ? join(folder, CREDENTIALS) : null;
    this.access = this.credentials === null ? Access.NONE : new Access(adminFiles(this.credentials));
    const { leaseMs, clockSkewMs, onUnexpectedEnd, s3Ports = [] } = options;
    const plans = planServers({ ...options, s3Ports }, folder, this.credentials, [
      ...['--lease', `${leaseMs}ms`],
      ...['--clock-skew', `${clockSkewMs}ms`],
      ...['--named-lease-max', `${Math.max(NAMED_LEASE_MAX_MS, NAMED_LEASE_PER_SKEW_MIN * clockSkewMs)}ms`],
    ]);
    const environment = { LEASEHOLD_DEV_CONTROL: control.address };
    this.servers = plans.map(
      (plan) =>
        new ServerProcess({ ...plan, access: this.access, environment }, (server, how) =>
          onUnexpectedEnd(server, how, this.servers),
        ),
    );
    control.watchServers(this.servers);
    this.client = new ClusterClient({
      world: systemWorld,
      servers: plans.map(({ url }) => url),
      access: this.access,
    });
  }

  /** Starts the servers; resolves when the volume can be used. Cleans up after a failure. */
  static async start(options: DevClusterOptions): Promise<DevCluster> {
    for (const port of [...options.ports, ...(options.s3Ports ?? [])]) await assertPortFree(port);
    const folder = await makeFolder(options.data);
    if (options.isSecure === true) await makeCredentials(join(folder, CREDENTIALS), options.ports.length);
    const cluster = new DevCluster(options, folder, await DevControl.start());
    try {
      await Promise.all(cluster.servers.map((server) => server.start()));
      await Promise.all(cluster.servers.map((server) => server.waitUntilReady(READY_TIMEOUT_MS)));
      await cluster.#createVolume();
      return cluster;
    } catch (error) {
      await cluster.stop();
      throw error;
    }
  }

  get urls(): string[] {
    return this.servers.map((server) => server.plan.url);
  }

  get mounted(): Mounted | null {
    return this.#mounted;
  }

  async mount(directory: string): Promise<Mounted> {
    await mkdir(directory, { recursive: true }).catch((error: unknown) => {
      // A dead mount may be there, which mounting replaces.
      if (!isSystemError(error) || !['EEXIST', 'ENOTCONN'].includes(error.code ?? '')) throw error;
    });
    const log = join(this.#folder, 'mount.log');
    this.#mounted = await mountVolume({
      servers: this.urls,
      volume: DevCluster.VOLUME,
      directory,
      log,
      ...(this.credentials === null ? {} : { access: adminFiles(this.credentials) }),
    });
    return this.#mounted;
  }

  /** Unmounts, which may store something, and then ends the servers. @returns servers that were restarted elsewhere */
  async stop(): Promise<readonly ForeignServer[]> {
    const failures: unknown[] = [];
    if (this.#mounted !== null) {
      const { directory } = this.#mounted;
      this.#mounted = null;
      try {
        // The user may have unmounted it already.
        if ((await mountAt(directory)) !== null) await unmountDirectory(directory, { lazy: true });
      } catch (error) {
        failures.push(error);
      }
    }
    await this.client.close();
    await Promise.all(this.servers.map((server) => server.stop()));
    await this.control.close();
    const pids = await Promise.all(
      this.servers.map(async (server) => ({ id: server.plan.id, pid: await server.foreignPid() })),
    );
    const foreign = pids.flatMap(({ id, pid }) => (pid === null ? [] : [{ id, pid }]));
    if (this.options.data === null && foreign.length === 0)
      await rm(this.#folder, { recursive: true, force: true });
    if (failures.length > 0) throw failures[0];
    return foreign;
  }

  async #createVolume(): Promise<void> {
    const replicas = Math.min(VOLUME_REPLICAS, this.servers.length);
    try {
      await this.client.command({
        kind: 'volume-create',
        name: DevCluster.VOLUME,
        replicas,
        objectBytes: OBJECT_BYTES,
      });
    } catch (error) {
      if (!(error instanceof ServiceError && error.code === 'exists')) throw error;
    }
  }
}

async function makeCredentials(folder: string, count: number): Promise<void> {
  const { completeCredentials } = await import('../certificates/credentials.ts');
  const ids = Array.from({ length: count }, (_, index) => `s${index + 1}` as ServerId);
  await completeCredentials(folder, {
    servers: new Map(ids.map((id) => [id, ['localhost', HOST]])),
    clients: new Map([
      ['admin', 'admin'],
      ['writer', 'write'],
      ['reader', 'read'],
    ]),
  });
}

function adminFiles(credentials: string): AccessFiles {
  return { ca: join(credentials, 'admin', 'ca.pem'), tokenFile: join(credentials, 'admin', 'token') };
}

function planServers(
  { ports, s3Ports }: { readonly ports: readonly number[]; readonly s3Ports: readonly number[] },
  folder: string,
  credentials: string | null,
  timing: readonly string[],
): Omit<ServerPlan, 'access'>[] {
  const scheme = credentials === null ? 'http' : 'https';
  const addresses = ports.map((port) => `${HOST}:${port}`);
  const peers = addresses.flatMap((address, index) => ['--peer', `s${index + 1}=${address}`]);
  return addresses.map((address, index) => {
    const id = `s${index + 1}`;
    const data = join(folder, id);
    return {
      id,
      address,
      url: `${scheme}://${address}`,
      data,
      s3: s3Ports[index] === undefined ? null : `${scheme}://${HOST}:${s3Ports[index]}`,
      log: join(folder, `${id}.log`),
      argv: [
        '--id',
        id,
        '--listen',
        address,
        ...peers,
        '--data',
        data,
        ...timing,
        ...(s3Ports[index] === undefined ? [] : ['--s3-listen', `${HOST}:${s3Ports[index]}`]),
        ...securityOptions(credentials, id),
      ],
    };
  });
}

function securityOptions(credentials: string | null, id: string): string[] {
  if (credentials === null) return [];
  const file = (name: string): string => join(credentials, id, name);
  const tls = ['--tls-cert', file('node.pem'), '--tls-key', file('node-key.pem'), '--tls-ca', file('ca.pem')];
  return [...tls, '--tokens', file('tokens.json')];
}

async function makeFolder(data: string | null): Promise<string> {
  if (data === null) return mkdtemp(join(tmpdir(), 'leasehold-'));
  const folder = resolve(data);
  try {
    await mkdir(folder, { recursive: true });
  } catch (error) {
    if (!isSystemError(error)) throw error;
    throw usageFailure(`Cannot use "${data}" for the data: ${systemReason(error)}`);
  }
  return folder;
}

/** @throws CommandFailure if another program uses the port; the server's own error would only be in its log */
async function assertPortFree(port: number): Promise<void> {
  const probe = createServer();
  try {
    await new Promise<void>((resolve, reject) => {
      probe.once('error', reject);
      probe.listen({ host: HOST, port, exclusive: true }, resolve);
    });
  } catch (error) {
    if (!isSystemError(error)) throw error;
    const perhapsOurs = 'perhaps a cluster runs here already ("leasehold status" shows it)';
    const others = 'choose others with --port';
    const isUsed = error.code === 'EADDRINUSE';
    throw usageFailure(
      `Cannot use port ${port}: ${isUsed ? 'another program uses it' : systemReason(error)}`,
      isUsed ? `${perhapsOurs}; else ${others}` : others,
    );
  } finally {
    await new Promise<void>((resolve) => probe.close(() => resolve()));
  }
}
