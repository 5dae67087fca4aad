import type { LivePart } from '../../wire/live-api.ts';

/** Long enough to be steady, short enough to show a pause of a second. */
const WINDOW_MS = 500;

interface Sample {
  readonly life: string;
  readonly atMs: number;
  readonly writes: number;
  readonly reads: number;
}

/** Turns counters of each server into rates per second. */
export class Rates {
  readonly #samples = new Map<string, readonly Sample[]>();

  /** @param atMs when the report was received, monotonic */
  addSample(
    server: string,
    { life, writes, reads }: Pick<LivePart, 'life' | 'writes' | 'reads'>,
    atMs: number,
  ): void {
    const before = this.#samples.get(server) ?? [];
    const ofThisLife = before.filter((sample) => sample.life === life);
    const begin = ofThisLife.findLastIndex((sample) => atMs - sample.atMs >= WINDOW_MS);
    this.#samples.set(server, [...ofThisLife.slice(Math.max(0, begin)), { life, atMs, writes, reads }]);
  }

  ratesOf(server: string): { readonly writesPerS: number; readonly readsPerS: number } {
    const samples = this.#samples.get(server) ?? [];
    const [first] = samples;
    const last = samples.at(-1);
    if (first === undefined || last === undefined || last.atMs <= first.atMs)
      return { writesPerS: 0, readsPerS: 0 };
    const perS = 1000 / (last.atMs - first.atMs);
    return {
      writesPerS: Math.round((last.writes - first.writes) * perS * 10) / 10,
      readsPerS: Math.round((last.reads - first.reads) * perS * 10) / 10,
    };
  }
}
