/** What is wrong with the data, counted in records. */
export interface Damage {
  /** Acknowledged and missing, or an older state in place of an acknowledged newer one. */
  readonly lost: number;
  readonly duplicated: number;
  /** Neither what was written nor nothing. */
  readonly corrupt: number;
}

export const NO_DAMAGE: Damage = { lost: 0, duplicated: 0, corrupt: 0 };

export function damageSum(a: Damage, b: Damage): Damage {
  return {
    lost: a.lost + b.lost,
    duplicated: a.duplicated + b.duplicated,
    corrupt: a.corrupt + b.corrupt,
  };
}

/** The outcomes of a writer's appends, recorded outside the servers. */
export class Ledger {
  #next = 1;
  readonly #acknowledged = new Set<number>();
  /** Failed with an unknown outcome: 0 or 1 occurrences are right. */
  readonly #unknown = new Set<number>();

  begin(): number {
    return this.#next++;
  }

  acknowledge(number: number): void {
    this.#acknowledged.add(number);
  }

  markUnknown(number: number): void {
    this.#unknown.add(number);
  }

  get acknowledgedCount(): number {
    return this.#acknowledged.size;
  }

  get unknownCount(): number {
    return this.#unknown.size;
  }

  /** Compares the file's records. @param holesAllowed whether a write with unknown outcome may have left a gap */
  compare(numbers: readonly (number | null)[], holesAllowed: boolean): Damage {
    const counts = new Map<number, number>();
    let unexpected = 0;
    for (const number of numbers) {
      if (number === null || !(this.#acknowledged.has(number) || this.#unknown.has(number))) unexpected++;
      else counts.set(number, (counts.get(number) ?? 0) + 1);
    }
    let lost = 0;
    let duplicated = 0;
    for (const number of this.#acknowledged) if (!counts.has(number)) lost++;
    for (const count of counts.values()) duplicated += count - 1;
    const holes = holesAllowed ? this.#unknown.size : 0;
    return { lost, duplicated, corrupt: Math.max(0, unexpected - holes) };
  }
}
