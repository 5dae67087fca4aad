/**
 * A thing whose numbered changes come one after the other, made and queried on any mount. It is a linearizable
 * register if no query returns a smaller version than the last change that ended before the query began, or than an
 * earlier query returned, or a version whose change has not begun.
 */
export class Register {
  /** When each change began and when it ended; Infinity while it has not ended. */
  readonly #begunMs: number[] = [-Infinity];
  readonly #madeMs: number[] = [-Infinity];
  /** The largest version that a query had returned by a time; both grow. */
  readonly #seen: { readonly atMs: number; readonly version: number }[] = [];

  /** The number of the last change, ended or in progress. */
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
   * @param shows whether the answer equals a version
   * @param mixes for an answer from mapped memory: whether it consists of parts of the versions in a range. Programs
   * of one mount see its writes there in parts, and before the cluster has them, which proves nothing for other reads
   * @returns why the answer is impossible between the two times, or null
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
