/**
 * A thing whose changes come one after the other, each with a number, and are made and seen on any mount. It is one thing
 * (a linearizable register) if nobody sees less than what was made when he began to look, nor less than somebody else had
 * seen by then, nor what nobody had begun to make.
 */
export class Register {
  /** When each change began and when it was made; Infinity while that is not known. */
  readonly #begunMs: number[] = [-Infinity];
  readonly #madeMs: number[] = [-Infinity];
  /** The largest version that somebody had seen by a time, both growing. */
  readonly #seen: { readonly atMs: number; readonly version: number }[] = [];

  /** The last change, be it made or under way. */
  get version(): number {
    return this.#begunMs.length - 1;
  }

  /** @returns the number of a change that begins now */
  begin(nowMs: number): number {
    this.#madeMs.push(Number.POSITIVE_INFINITY);
    return this.#begunMs.push(nowMs) - 1;
  }

  made(version: number, nowMs: number): void {
    this.#madeMs[version] = nowMs;
  }

  /**
   * @param shows whether what was seen is what a version looks like
   * @param mixes where it was seen through a mapping: whether it is put together of versions between two. Programs of the same mount find there what is being
   *   written, in pieces and before the cluster has it: that says nothing to others
   * @returns why it cannot have been seen between the two times; null where it can
   */
  judge(
    fromMs: number,
    untilMs: number,
    shows: (version: number) => boolean,
    mixes?: (from: number, to: number) => boolean,
  ): string | null {
    const made = this.#madeMs.findLastIndex((atMs) => atMs <= fromMs);
    const seen = this.#seen.findLast(({ atMs }) => atMs <= fromMs)?.version ?? 0;
    const least = Math.max(made, seen);
    const most = this.#begunMs.findLastIndex((atMs) => atMs <= untilMs);
    for (let version = least; version <= most; version++) {
      if (!shows(version)) continue;
      const isNews = mixes === undefined && version > (this.#seen.at(-1)?.version ?? 0);
      if (isNews) this.#seen.push({ atMs: untilMs, version });
      return null;
    }
    if (most > least && mixes?.(least, most) === true) return null;
    let past = least - 1;
    while (past >= 0 && !shows(past)) past--;
    const what = past < 0 ? 'what never was' : `version ${past}`;
    return `it is ${what} instead of ${least} to ${most}; ${made} was made, and ${seen} seen, before`;
  }
}
