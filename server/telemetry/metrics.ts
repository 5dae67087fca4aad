import {
  collectDefaultMetrics,
  Counter as LibraryCounter,
  Gauge as LibraryGauge,
  Histogram as LibraryHistogram,
  Registry,
} from '@prometheus-io/client';
import type { World } from '../../base/world.ts';

/** Label names and values of a metric, few and bounded: never a path or a file id. */
export type Labels = Readonly<Record<string, string>>;

export interface Counter {
  add(amount?: number, labels?: Labels): void;
}

export interface Durations {
  observe(seconds: number, labels?: Labels): void;
  /** @returns a callback that observes the time since this call */
  begin(labels?: Labels): () => void;
}

export type Sample = number | Iterable<readonly [Labels, number]>;

type MetricType = 'counter' | 'gauge';

const METRIC_NAME = /^leasehold(?:_[a-z0-9]+)+$/;
const MS_PER_S = 1000;
/** The event loop's lag is the time between two samples: without any lag this period, in milliseconds. */
export const LOOP_SAMPLE_MS = 50;

/** Upper bounds in seconds: from a write into memory to a request that waits for an election. */
const DURATION_BUCKETS_S = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30,
];

/** A server's metrics, in the text format of Prometheus (version 0.0.4). */
export class MetricsRegistry {
  readonly #world: World;
  readonly #library = new Registry();

  constructor(world: World) {
    this.#world = world;
  }

  counter(name: string, help: string, labelNames: readonly string[] = []): Counter {
    const counter = new LibraryCounter({
      ...this.#config(name, 'counter', help),
      labelNames: [...labelNames],
    });
    return { add: (amount = 1, labels = {}) => counter.inc(labels, amount) };
  }

  durations(name: string, help: string, labelNames: readonly string[] = []): Durations {
    const histogram = new LibraryHistogram({
      ...this.#config(name, 'histogram', help),
      labelNames: [...labelNames],
      buckets: DURATION_BUCKETS_S,
    });
    return {
      observe: (seconds, labels = {}) => histogram.observe(labels, seconds),
      begin: (labels = {}) => {
        const world = this.#world;
        const beganMs = world.nowMs();
        return () => histogram.observe(labels, (world.nowMs() - beganMs) / MS_PER_S);
      },
    };
  }

  /** A metric that is read at each scrape. `read` must be quick and must not throw. */
  observe(
    type: MetricType,
    name: string,
    help: string,
    read: () => Sample | Promise<Sample>,
    labelNames: readonly string[] = [],
  ): void {
    const config = { ...this.#config(name, type, help), labelNames: [...labelNames] };
    if (type === 'gauge') {
      new LibraryGauge({
        ...config,
        async collect() {
          const sample = await read();
          this.reset();
          for (const [labels, value] of pairsOf(sample)) this.set(labels, value);
        },
      });
    } else {
      new LibraryCounter({
        ...config,
        async collect() {
          const sample = await read();
          this.reset();
          for (const [labels, value] of pairsOf(sample)) this.inc(labels, value);
        },
      });
    }
  }

  /** Adds the process's metrics. Only for a process with one server: the sampling does not end before the process. */
  addProcess(): void {
    collectDefaultMetrics({
      register: this.#library,
      eventLoopMonitoringPrecision: LOOP_SAMPLE_MS,
      eventLoopUtilizationTimeout: MS_PER_S,
    });
  }

  text(): Promise<string> {
    return this.#library.metrics();
  }

  #config(
    name: string,
    type: MetricType | 'histogram',
    help: string,
  ): { readonly name: string; readonly help: string; readonly registers: Registry[] } {
    if (!METRIC_NAME.test(name)) throw new RangeError(`${name} cannot name a metric of a server`);
    const ending = { counter: '_total', gauge: '', histogram: '_duration_seconds' }[type];
    if (!name.endsWith(ending)) throw new RangeError(`The name of ${type} ${name} does not end in ${ending}`);
    return { name, help, registers: [this.#library] };
  }
}

function pairsOf(sample: Sample): Iterable<readonly [Labels, number]> {
  return typeof sample === 'number' ? [[{}, sample]] : sample;
}
