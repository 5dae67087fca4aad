import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePorts } from '../../../client/dev/free-ports.ts';
import { JuteSession } from './jute.ts';
import { Service } from './service.ts';

const JAVA = '/usr/bin/java';
const JAR = '/usr/share/java/zookeeper.jar';
const MEMBERS = 3;
const ROOT = '/bench';

/** Three ZooKeeper servers on loopback. A lease is an ephemeral node; each client has one session, as usual. */
export class ZooKeeper {
  static readonly missing = existsSync(JAVA) && existsSync(JAR) ? null : 'apt-get install zookeeper';
  readonly service: Service;
  readonly #ports: readonly number[];
  #nextNode = 1;

  private constructor(service: Service, ports: readonly number[]) {
    this.service = service;
    this.#ports = ports;
  }

  /** @returns once it answers. @throws Error if it does not start */
  static async start(): Promise<ZooKeeper> {
    const free = await freePorts(3 * MEMBERS);
    const ports = free.slice(0, MEMBERS);
    const service = new Service('zookeeper');
    try {
      for (let place = 0; place < MEMBERS; place++) {
        const data = join(service.folder, `data-${place + 1}`);
        mkdirSync(data);
        writeFileSync(join(data, 'myid'), `${place + 1}\n`);
        const config = join(service.folder, `zoo-${place + 1}.cfg`);
        writeFileSync(config, configuration(data, ports[place] as number, free.slice(MEMBERS)));
        service.spawn(JAVA, [
          '-Xmx1g',
          '-Dzookeeper.admin.enableServer=false',
          '-cp',
          JAR,
          'org.apache.zookeeper.server.quorum.QuorumPeerMain',
          config,
        ]);
      }
      const zooKeeper = new ZooKeeper(service, ports);
      for (const port of ports) {
        await service.ready(async () => {
          const session = await JuteSession.open(port);
          await session.create([ROOT], false);
          await session.close();
        });
      }
      return zooKeeper;
    } catch (error) {
      service.stop();
      throw error;
    }
  }

  /** A client at each server acquires its share at once. @returns leases per second */
  async batch(batch: number): Promise<number> {
    const sessions = await this.#sessions();
    const share = Math.ceil(batch / sessions.length);
    const paths = sessions.map(() => Array.from({ length: share }, () => this.#path()));
    const begunMs = performance.now();
    await Promise.all(sessions.map((session, place) => session.create(paths[place] ?? [], true)));
    const perSecond = (share * sessions.length * 1000) / (performance.now() - begunMs);
    await Promise.all(sessions.map((session) => session.close()));
    return perSecond;
  }

  /** Clients acquire single leases, at one server after the other. @returns the time of each, in milliseconds */
  async singles(count: number): Promise<number[]> {
    const sessions = await this.#sessions();
    const latenciesMs: number[] = [];
    for (let index = 0; index < count; index++) {
      const session = sessions[Math.floor((index * sessions.length) / count)] as JuteSession;
      const begunMs = performance.now();
      await session.create([this.#path()], true);
      latenciesMs.push(performance.now() - begunMs);
    }
    await Promise.all(sessions.map((session) => session.close()));
    return latenciesMs;
  }

  #sessions(): Promise<JuteSession[]> {
    return Promise.all(this.#ports.map((port) => JuteSession.open(port)));
  }

  #path(): string {
    return `${ROOT}/${this.#nextNode++}`;
  }
}

function configuration(data: string, port: number, inner: readonly number[]): string {
  const servers = Array.from(
    { length: MEMBERS },
    (_, place) => `server.${place + 1}=127.0.0.1:${inner[2 * place]}:${inner[2 * place + 1]}`,
  );
  return [
    'tickTime=2000',
    'initLimit=10',
    'syncLimit=5',
    `dataDir=${data}`,
    `clientPort=${port}`,
    'clientPortAddress=127.0.0.1',
    'maxClientCnxns=0',
    ...servers,
    '',
  ].join('\n');
}
