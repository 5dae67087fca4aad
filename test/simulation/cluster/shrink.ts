/**
 * Shrinks a failing run: removes time, faults and threads as long as the same rule is broken. Faults and threads have
 * generators of their own, so that leaving one out does not change the draws of others.
 */
import { shorterLists } from '../delta-debugging.ts';
import { type RunOptions, type RunReport, runCluster } from './cluster-run.ts';

/** The most runs that are tried: each takes seconds. */
const PLAYS_MAX = 120;
/** The shares of the work's time that are tried. */
const SHORTER = [0.25, 0.5, 0.75, 0.9];

export interface Shrunk {
  readonly options: RunOptions;
  readonly report: RunReport;
  /** The number of runs that were tried. */
  readonly plays: number;
}

/** @returns the rule that a violation breaks, without the names and numbers of this case */
export function ruleOf(violation: string): string {
  const [line = ''] = violation.split('\n', 1);
  return line
    .replace(/: \{.*/, '')
    .slice(0, 120)
    .replaceAll(/[\w./-]*\d[\w./-]*/g, '·');
}

/** @param report of a run with these options that violates a rule */
export async function shrink(
  options: RunOptions,
  report: RunReport,
  onPlay: (text: string) => void = () => undefined,
): Promise<Shrunk> {
  const shrinking = new Shrinking(options, report, onPlay);
  for (let before = ''; before !== shrinking.text; ) {
    before = shrinking.text;
    await shrinking.shorten();
    await shrinking.drop('withoutFaults', shrinking.faults);
    await shrinking.drop('withoutThreads', shrinking.threads);
  }
  return { options: shrinking.options, report: shrinking.report, plays: shrinking.plays };
}

class Shrinking {
  options: RunOptions;
  report: RunReport;
  plays = 0;
  readonly #rules: ReadonlySet<string>;
  readonly #onPlay: (text: string) => void;

  constructor(options: RunOptions, report: RunReport, onPlay: (text: string) => void) {
    this.options = options;
    this.report = report;
    this.#rules = new Set(report.violations.map(ruleOf));
    this.#onPlay = onPlay;
  }

  /** Numbers of the faults that happen. */
  get faults(): readonly number[] {
    const { withoutFaults = new Set() } = this.options;
    return this.report.plan.map(({ index }) => index).filter((index) => !withoutFaults.has(index));
  }

  get threads(): readonly string[] {
    const { withoutThreads = new Set() } = this.options;
    return this.report.threads.filter((thread) => !withoutThreads.has(thread));
  }

  get text(): string {
    return `${this.options.forMs} ms, ${this.faults.length} faults, ${this.threads.length} threads`;
  }

  /** Continues from these options if they break one of the same rules. */
  async #adopt(options: RunOptions): Promise<boolean> {
    if (this.plays >= PLAYS_MAX) return false;
    this.plays++;
    const report = await runCluster(options);
    const isSame = report.violations.some((violation) => this.#rules.has(ruleOf(violation)));
    if (!isSame) return false;
    this.options = options;
    this.report = report;
    this.#onPlay(this.text);
    return true;
  }

  /** Removes the end of the work, with the faults in it. */
  async shorten(): Promise<void> {
    for (const share of SHORTER) {
      const forMs = Math.ceil((this.options.forMs * share) / 100) * 100;
      if (forMs < this.options.forMs && (await this.#adopt({ ...this.options, forMs }))) return;
    }
  }

  async drop<Item extends number | string>(
    what: 'withoutFaults' | 'withoutThreads',
    all: readonly Item[],
  ): Promise<void> {
    const before = (this.options[what] ?? new Set()) as ReadonlySet<Item>;
    const lists = shorterLists(all, 'last-first');
    let step = lists.next();
    while (step.done !== true) {
      const kept = new Set(step.value);
      const without = new Set([...before, ...all.filter((item) => !kept.has(item))]);
      step = lists.next(await this.#adopt({ ...this.options, [what]: without }));
    }
  }
}
