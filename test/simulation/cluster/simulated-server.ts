import './guard.ts';
import { Writable } from 'node:stream';
import { type Logger, pino } from 'pino';
import type { Prng } from '../../../base/prng.ts';
import { readConfig } from '../../../server/config/config.ts';
import type { Machine } from '../../../server/process/machine.ts';
import { Server } from '../../../server/server.ts';
import { FolderError } from '../../../server/storage/folder-error.ts';
import { mountDisk } from './disk/guarded-files.ts';
import { PrivateDisk } from './disk/private-disk.ts';
import type { SimulatedHttp } from './simulated-http.ts';
import type { SimulatedProcess } from './simulated-process.ts';
import type { SimulatedPeers } from './simulated-transport.ts';
import type { VirtualTime } from './virtual-time.ts';

/** What all servers of a cluster share. */
export interface ClusterNet {
  readonly time: VirtualTime;
  readonly peers: SimulatedPeers;
  readonly http: SimulatedHttp;
  /** Restarts servers that end by themselves, as an init system does. */
  readonly supervisor: SimulatedProcess;
}

/** The pause before a failed start is repeated. */
const RESTART_MS = 1_000;

export interface ServerOptions {
  readonly id: string;
  readonly flags: readonly string[];
  /** The options of its command line that name the other servers. */
  readonly others: readonly string[];
  readonly origin: string;
  /** The folder of its disk. */
  readonly folder: string;
  readonly random: Prng;
  /** The offset of its clock, in all lives. */
  readonly offsetMs: number;
  readonly driftPpm: number;
  /** The level of its log, `silent` for nothing. */
  readonly logLevel: string;
}

/** A composed server: the production code in a simulated process, which may end and start again. */
export class SimulatedServer {
  readonly id: string;
  readonly origin: string;
  readonly disk: PrivateDisk;
  readonly #net: ClusterNet;
  readonly #options: ServerOptions;
  #others: readonly string[];
  #process: SimulatedProcess | null = null;
  #server: Server | null = null;
  #boots = 1;
  starts = 0;
  /** Whether it is started with `--rebuild`. */
  rebuilds = false;
  /** A page of its catalog was damaged, perhaps unnoticed so far. */
  hasDamagedPage = false;
  /** Why it ended by itself, if it did. */
  failure: unknown = null;
  /** It was removed from its cluster, and is not started again. */
  isRetired = false;

  constructor(net: ClusterNet, options: ServerOptions) {
    this.id = options.id;
    this.origin = options.origin;
    this.#net = net;
    this.#options = options;
    this.#others = options.others;
    this.disk = new PrivateDisk(options.folder, options.random);
  }

  get process(): SimulatedProcess | null {
    return this.#process;
  }

  get runs(): boolean {
    return this.#process !== null && !this.#process.hasEnded;
  }

  /** Whether it listens. */
  get hasStarted(): boolean {
    return this.runs && this.#server !== null;
  }

  /** @see Server.filesInUse */
  get filesInUse(): string[] {
    return this.runs ? (this.#server?.filesInUse() ?? []) : [];
  }

  start(): void {
    const { offsetMs, driftPpm, flags, logLevel, origin } = this.#options;
    const { time, peers, http } = this.#net;
    const process = time.process(this.id, { offsetMs, driftPpm });
    this.#process = process;
    this.#server = null;
    this.starts++;
    mountDisk(process, this.disk);
    const log = this.#log(logLevel);
    const rebuild = this.rebuilds ? ['--rebuild'] : [];
    const config = readConfig(
      [...flags, ...this.#others, ...rebuild, '--data', this.disk.folder],
      {},
      () => '',
    );
    const machine: Machine = {
      bootId: `boot-${this.#boots}`,
      peerTransport: (options) => peers.join(process, options),
      memoryFolder: this.disk.memory,
      environment: {},
      descriptors: async () => null,
      peerHttp: (_peer, url) => http.channel(process, this.id, url),
      assertAddressFree: async () => undefined,
      listen: async (app) => {
        await app.ready();
        http.listen(process, this.id, origin, app.server);
      },
    };
    const fatal = (error: unknown): void => {
      process.crashed(error);
    };
    process.onEndOnce(() => {
      if (process.failure !== null) this.failure = process.failure;
    });
    time.after(0, process, () => {
      time.note('starts');
      Server.start(config, { world: process, log, fatal, machine }).then(
        (server) => {
          this.#server = server;
          time.note('listens');
        },
        (error: unknown) => {
          if (error instanceof FolderError && error.isTemporary) this.#startAgain(process);
          else process.crashed(error);
        },
      );
    });
  }

  /** Ends its process as `kill -9` does. */
  kill(): void {
    this.#end(false);
  }

  /** Its machine loses power. */
  losePower(): void {
    this.#boots++;
    this.#end(true);
  }

  /** Replaces its disk by an empty one; its process ends. @param others as the options, from its next start on */
  loseDisk(others = this.#others): void {
    this.#others = others;
    this.#boots++;
    this.#end(true);
    this.disk.replace();
  }

  #startAgain(process: SimulatedProcess): void {
    process.end();
    this.#net.time.after(RESTART_MS, this.#net.supervisor, () => {
      if (this.#process !== process) return;
      this.kill();
      this.start();
    });
  }

  #end(lostPower: boolean): void {
    this.#process?.end();
    this.disk.next(lostPower);
    this.#process = null;
    this.#server = null;
  }

  #log(level: string): Logger {
    const { time } = this.#net;
    if (level === 'silent') return pino({ level });
    const lines = new Writable({
      write: (chunk, _encoding, done) => {
        time.note(`log ${String(chunk).trimEnd()}`);
        done();
      },
    });
    return pino({ level, base: null, timestamp: false }, { write: (line: string) => void lines.write(line) });
  }
}
