import { parseMountOptions } from '../../../client/mounts/mount-options.ts';
import { NAMELESS_USERS } from '../../../fuse/cluster/users.ts';
import { type ClusterMount, mountCluster } from '../../../fuse/composition.ts';
import { WRITTEN_BYTES_LEAST } from '../../../fuse/contents/written-pages.ts';
import { ModelKernel } from '../kernel/model-kernel.ts';
import { opcodeName } from '../kernel/request-queue.ts';
import { derived } from './derived.ts';
import type { SimulatedCluster } from './simulated-cluster.ts';
import type { SimulatedProcess } from './simulated-process.ts';

/** The probability that a caller runs only a while after its reply. */
const WAKE = 0.05;
const WAKE_MS_MAX = 30;

export const CACHES = ['strict', 'leases', 'ttl'] as const;
export type Cache = (typeof CACHES)[number];

/** How long a mount with `cache=ttl` uses an answer. */
export const TTL_MS = 1_000;

const CACHE_OPTIONS: Readonly<Record<Cache, string>> = {
  strict: 'cache=strict',
  leases: 'cache=leases',
  ttl: `cache=ttl:${TTL_MS}ms`,
};

/** The probability that a life of a mount has a short time limit, in milliseconds. */
const IMPATIENT = 0.3;
const IMPATIENT_MS_MIN = 400;
const IMPATIENT_MS_MAX = 2_000;

/** A machine with one mount: its kernel and programs are one simulated process, the mount's process is another. */
export class SimulatedMachine {
  /** Includes the number of its life. */
  readonly name: string;
  /** The index of the machine. */
  readonly index: number;
  readonly volume: string;
  readonly cache: Cache;
  readonly kernel: SimulatedProcess;
  readonly daemon: SimulatedProcess;
  readonly model: ModelKernel;
  /** Its programs have ended, or the mount failed. */
  hasEnded = false;
  /** When it was unmounted in good order, with all acknowledged changes stored: nanoseconds of true time. */
  unmountedNs = Number.POSITIVE_INFINITY;
  /** Paths of new files that the mount has dropped, as programs have learned. */
  readonly dropped = new Set<string>();
  /** How long after its reply each caller runs, in milliseconds; null: sometimes a little later, by the seed. */
  wakesAfterMs: number | null = null;
  #mount: ClusterMount | null = null;

  constructor(cluster: SimulatedCluster, index: number, life: number, volume: string, cache: Cache) {
    this.name = `m${index + 1}.${life}`;
    this.index = index;
    this.volume = volume;
    this.cache = cache;
    const { time, seed } = cluster;
    const draw = derived(seed, `clock of ${this.name}`);
    const clocks = { offsetMs: (draw.next() - 0.5) * 10_000, driftPpm: (draw.next() - 0.5) * 100 };
    this.kernel = time.process(`${this.name}.kernel`, clocks);
    this.daemon = time.process(`${this.name}.daemon`, clocks);
    const wakes = derived(seed, `wakes of ${this.name}`);
    this.model = new ModelKernel(this.kernel, {
      below: this.daemon,
      seen: ({ opcode, node, pid }) => time.note(`${pid} asks for ${opcodeName(opcode)} of ${node}`),
      wakeMs: () => this.wakesAfterMs ?? (wakes.chance(WAKE) ? wakes.next() * WAKE_MS_MAX : 0),
    });
    this.daemon.onEndOnce(() => this.model.abort());
  }

  /** The cache mode, and in some lives a short time limit. */
  #drawnOptions({ seed, shape }: SimulatedCluster): string {
    const draw = derived(seed, `options of ${this.name}`);
    const timeoutMs = IMPATIENT_MS_MIN + Math.floor(draw.next() * (IMPATIENT_MS_MAX - IMPATIENT_MS_MIN));
    const isImpatient = shape.hasMountWork === true && draw.chance(IMPATIENT);
    const impatient = isImpatient ? `,op_timeout=${timeoutMs}ms` : '';
    return `${CACHE_OPTIONS[this.cache]}${impatient}`;
  }

  /**
   * Starts the mount's process.
   * @param done called in the kernel's process, with an error if the mount failed
   * @param options as in `-o`
   */
  mount(
    cluster: SimulatedCluster,
    done: (error: Error | null) => void,
    options = this.#drawnOptions(cluster),
  ): void {
    const { time, origins } = cluster;
    const { daemon, model, volume } = this;
    const settings = {
      ...parseMountOptions([options]),
      ...{ servers: origins, volume, path: '/', directory: '/' },
    };
    time.after(0, daemon, () => {
      const surroundings = {
        ...{
          world: daemon,
          access: cluster.access(daemon),
          transport: model.transport,
          expiresNames: true,
          isRoot: true,
        },
        ...{ users: NAMELESS_USERS, writtenBytesMax: WRITTEN_BYTES_LEAST },
        log: (level: string, message: string) => time.note(`${level}: ${message}`),
      };
      const tell = (error: Error | null): void => void time.after(0, this.kernel, () => done(error));
      mountCluster(settings, surroundings).then((mount) => {
        this.#mount = mount;
        tell(null);
      }, tell);
    });
  }

  get isMounted(): boolean {
    return this.#mount !== null && !this.hasEnded;
  }

  /** Ends its programs and unmounts. @param done called in the kernel's process once that has ended or failed */
  unmount(cluster: SimulatedCluster, done: () => void): void {
    const { time } = cluster;
    const tell = (): void => void time.after(0, this.kernel, done);
    const unmounted = async (mount: ClusterMount): Promise<void> => {
      await mount.unmount();
      await mount.ended;
      if (!mount.hasDropped) this.unmountedNs = Math.round(time.nowMs * 1e6);
    };
    const mount = this.#mount;
    if (mount === null) {
      tell();
      return;
    }
    time.after(0, this.kernel, () => {
      void this.model.endProcesses().then(() =>
        time.after(0, this.daemon, () => {
          unmounted(mount).then(tell, (error: Error) => {
            time.note(`cannot unmount: ${error.message}`);
            tell();
          });
        }),
      );
    });
  }

  /** Kills the machine at once. */
  end(): void {
    this.hasEnded = true;
    this.kernel.end();
    this.daemon.end();
  }
}
