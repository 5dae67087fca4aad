import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { freePorts } from '../../../client/dev/free-ports.ts';
import { GrpcConnection, protobufField, protobufInteger } from './grpc.ts';
import { Service } from './service.ts';

const PROGRAM = '/usr/bin/etcd';
const MEMBERS = 3;
const LEASE_GRANT = '/etcdserverpb.Lease/LeaseGrant';
const TXN = '/etcdserverpb.KV/Txn';
/** Pending calls at each server: more are not faster, and etcd begins to refuse. */
const CALLS_MAX = 256;
/** So long that no lease ends or is renewed during a measurement. */
const LEASE_SECONDS = 3_600;
const TARGET_CREATE_REVISION = 1;

/** `lease-each`: a lease for each name. `shared`: one lease for each client, which has all its names. */
export type EtcdStyle = 'lease-each' | 'shared';

/**
 * Three etcd servers on loopback. A lease here is a key that is created if absent, and that ends with an etcd lease.
 */
export class Etcd {
  static readonly missing = existsSync(PROGRAM) ? null : 'apt-get install etcd-server';
  readonly service: Service;
  readonly #connections: readonly GrpcConnection[];
  /** One etcd lease per client. */
  readonly #shared: readonly bigint[];
  #nextKey = 1;

  private constructor(service: Service, connections: readonly GrpcConnection[], shared: readonly bigint[]) {
    this.service = service;
    this.#connections = connections;
    this.#shared = shared;
  }

  /** @returns once it answers. @throws Error if it does not start */
  static async start(): Promise<Etcd> {
    const free = await freePorts(2 * MEMBERS);
    const service = new Service('etcd');
    const url = (port: number | undefined): string => `http://127.0.0.1:${port}`;
    const cluster = Array.from(
      { length: MEMBERS },
      (_, place) => `e${place + 1}=${url(free[MEMBERS + place])}`,
    );
    try {
      for (let place = 0; place < MEMBERS; place++) {
        service.spawn(PROGRAM, [
          ...['--name', `e${place + 1}`, '--data-dir', join(service.folder, `data-${place + 1}`)],
          ...['--listen-client-urls', url(free[place]), '--advertise-client-urls', url(free[place])],
          ...['--listen-peer-urls', url(free[MEMBERS + place])],
          ...['--initial-advertise-peer-urls', url(free[MEMBERS + place])],
          ...['--initial-cluster', cluster.join(','), '--initial-cluster-state', 'new'],
          ...['--logger', 'zap', '--log-level', 'error'],
        ]);
      }
      const connections: GrpcConnection[] = [];
      const shared: bigint[] = [];
      for (const port of free.slice(0, MEMBERS)) {
        const [connection, lease] = await service.ready(async () => {
          const opened = await GrpcConnection.open(port);
          return [opened, await grant(opened)] as const;
        });
        connections.push(connection);
        shared.push(lease);
      }
      return new Etcd(service, connections, shared);
    } catch (error) {
      service.stop();
      throw error;
    }
  }

  /** A client at each server acquires its share at once. @returns leases per second */
  async batch(batch: number, style: EtcdStyle): Promise<number> {
    const share = Math.ceil(batch / MEMBERS);
    const begunMs = performance.now();
    await Promise.all(
      this.#connections.map(async (_, place) => {
        let left = share;
        const worker = async (): Promise<void> => {
          while (left > 0) {
            left--;
            await this.#acquire(place, style);
          }
        };
        await Promise.all(Array.from({ length: Math.min(CALLS_MAX, share) }, worker));
      }),
    );
    return (share * MEMBERS * 1000) / (performance.now() - begunMs);
  }

  /** Clients acquire single leases, at one server after the other. @returns the time of each, in milliseconds */
  async singles(count: number, style: EtcdStyle): Promise<number[]> {
    const latenciesMs: number[] = [];
    for (let index = 0; index < count; index++) {
      const begunMs = performance.now();
      await this.#acquire(Math.floor((index * MEMBERS) / count), style);
      latenciesMs.push(performance.now() - begunMs);
    }
    return latenciesMs;
  }

  stop(): void {
    for (const connection of this.#connections) connection.close();
    this.service.stop();
  }

  async #acquire(place: number, style: EtcdStyle): Promise<void> {
    const connection = this.#connections[place] as GrpcConnection;
    const lease = style === 'shared' ? (this.#shared[place] as bigint) : await grant(connection);
    const answer = await connection.call(TXN, putIfAbsent(`bench/${this.#nextKey++}`, lease));
    if (protobufInteger(answer, 2) !== 1n) throw new Error('etcd knew a key that no client has put');
  }
}

/** @returns the id of a new lease */
async function grant(connection: GrpcConnection): Promise<bigint> {
  return protobufInteger(await connection.call(LEASE_GRANT, protobufField(1, LEASE_SECONDS)), 2);
}

/** A transaction: creates the key under the lease if it is absent. */
function putIfAbsent(key: string, lease: bigint): Buffer {
  const compare = Buffer.concat([
    protobufField(2, TARGET_CREATE_REVISION),
    protobufField(3, key),
    protobufField(5, 0),
  ]);
  const put = Buffer.concat([protobufField(1, key), protobufField(3, lease)]);
  return Buffer.concat([protobufField(1, compare), protobufField(2, protobufField(2, put))]);
}
