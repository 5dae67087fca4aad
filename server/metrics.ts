/** Names and values of a metric's dimensions, few and bounded: never a path or a file id. */
export type Labels = Readonly<Record<string, string>>;

export interface Counter {
  add(amount?: number, labels?: Labels): void;
}

export interface Gauge {
  set(value: number, labels?: Labels): void;
}

/** One measured value, or several that differ in their labels. */
export type Sample = number | Iterable<readonly [Labels, number]>;

type MetricType = 'counter' | 'gauge';

interface Metric {
  readonly type: MetricType;
  readonly help: string;
  /** Values by label text; null where `read` knows them. */
  readonly values: Map<string, number>;
  readonly read: (() => Sample) | null;
}

const METRIC_NAME = /^[a-z][a-z0-9_]*$/;

/** What the server counts, in the text form that Prometheus reads (version 0.0.4). */
export class MetricsRegistry {
  readonly #metrics = new Map<string, Metric>();

  /** A number that only grows; by convention its name ends in `_total`. */
  counter(name: string, help: string): Counter {
    const { values } = this.#register(name, 'counter', help, null);
    return {
      add(amount = 1, labels) {
        const key = labelText(labels);
        values.set(key, (values.get(key) ?? 0) + amount);
      },
    };
  }

  gauge(name: string, help: string): Gauge {
    const { values } = this.#register(name, 'gauge', help, null);
    return {
      set(value, labels) {
        values.set(labelText(labels), value);
      },
    };
  }

  /** A metric that is read when somebody asks for it. `read` must be quick and must not throw. */
  observe(type: MetricType, name: string, help: string, read: () => Sample): void {
    this.#register(name, type, help, read);
  }

  text(): string {
    let text = '';
    for (const [name, metric] of this.#metrics) {
      text += `# HELP ${name} ${metric.help.replace(/\\/g, '\\\\').replace(/\n/g, '\\n')}\n`;
      text += `# TYPE ${name} ${metric.type}\n`;
      for (const [labels, value] of samplesOf(metric)) text += `${name}${labels} ${value}\n`;
    }
    return text;
  }

  #register(name: string, type: MetricType, help: string, read: (() => Sample) | null): Metric {
    if (!METRIC_NAME.test(name)) throw new RangeError(`${name} cannot name a metric`);
    if (this.#metrics.has(name)) throw new RangeError(`Metric ${name} is registered twice`);
    const metric: Metric = { type, help, values: new Map(), read };
    this.#metrics.set(name, metric);
    return metric;
  }
}

function* samplesOf(metric: Metric): Iterable<readonly [string, number]> {
  if (metric.read === null) {
    yield* metric.values;
    return;
  }
  const sample = metric.read();
  if (typeof sample === 'number') {
    yield ['', sample];
    return;
  }
  for (const [labels, value] of sample) yield [labelText(labels), value];
}

function labelText(labels: Labels | undefined): string {
  if (labels === undefined) return '';
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${escapeLabel(value)}"`);
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`;
}

function escapeLabel(value: string): string {
  return value.replace(/\\/g, '\\\\').replace(/"/g, '\\"').replace(/\n/g, '\\n');
}
