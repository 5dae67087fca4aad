import type { Statements } from './statements.ts';

/** The most that the clock advances, or is corrected, by one reading: more is a wrong clock, or a long outage. */
const STEP_MAX_NS = 24n * 3_600_000_000_000n;
/** How often the clock is stored while commands arrive. */
const STORE_EVERY_NS = 1_000_000_000n;

/** As decimal nanoseconds. */
export interface RetentionClock {
  readonly clockNs: string;
  /** Reading of the lease clock by which it was advanced last. */
  readonly leaseNs: string;
}

/**
 * Dates of files and snapshots, and the clock that says whether they have come. Plain access, no rules.
 *
 * Wall clocks step, so a date compared with one could come early. The retention clock advances by what the lease clock
 * of the catalog's primary advances: that never steps while the process runs, and a server whose clock differs from
 * those of most others holds no lease. At each change of the primary it gains at most a day. It never moves back.
 */
export class RetentionTables {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  /** Null before the first retention. */
  clock(): RetentionClock | null {
    const row = this.#statements.get<RetentionClock>(
      `SELECT CAST(clock_ns AS TEXT) AS clockNs, CAST(lease_ns AS TEXT) AS leaseNs FROM retention_clock`,
    );
    return row ?? null;
  }

  /** Whether a batch at this reading of the lease clock advances the clock, also if it concerns no retentions. */
  isDue(leaseNs: bigint): boolean {
    const clock = this.clock();
    if (clock === null) return false;
    const elapsedNs = leaseNs - BigInt(clock.leaseNs);
    return elapsedNs >= STORE_EVERY_NS || elapsedNs <= -STEP_MAX_NS;
  }

  /** @param leaseNs the primary's lease clock, the same at all replicas */
  advance(leaseNs: bigint): void {
    const clock = this.clock();
    if (clock === null) {
      this.#statements.run('INSERT INTO retention_clock VALUES (1, ?, ?)', leaseNs, leaseNs);
      return;
    }
    const elapsedNs = leaseNs - BigInt(clock.leaseNs);
    // Another primary's clock, a little behind: time between the two readings must not count twice.
    if (elapsedNs <= 0n && elapsedNs > -STEP_MAX_NS) return;
    const stepNs = elapsedNs < 0n ? 0n : elapsedNs < STEP_MAX_NS ? elapsedNs : STEP_MAX_NS;
    this.#statements.run(
      'UPDATE retention_clock SET clock_ns = clock_ns + ?, lease_ns = ?',
      ...[stepNs, leaseNs],
    );
  }

  /** Retentions of another catalog are measured by a clock that may be behind this one's. */
  setBack(clockNs: string): void {
    this.#statements.run('UPDATE retention_clock SET clock_ns = MIN(clock_ns, ?)', BigInt(clockNs));
  }

  nowNs(): bigint {
    return BigInt(this.clock()?.clockNs ?? 0);
  }

  isAhead(untilNs: string): boolean {
    return BigInt(untilNs) > this.nowNs();
  }

  /** Whether a date of the catalog, or of one that it lists, may not have come: the clock is then to be advanced. */
  hasDates(): boolean {
    if (this.clock() === null) return false;
    const latest = this.#statements.get<{ ns: string }>(
      `SELECT CAST(MAX(ns) AS TEXT) AS ns FROM (SELECT 0 AS ns UNION ALL SELECT retained_ns FROM volumes
         UNION ALL SELECT retained_ns FROM volume_catalogs WHERE state <> 'removed')`,
    );
    return this.isAhead(latest?.ns ?? '0');
  }

  put(inode: number, untilNs: string): void {
    this.#statements.run('INSERT OR REPLACE INTO retentions VALUES (?, ?)', inode, BigInt(untilNs));
  }

  delete(inode: number): void {
    this.#statements.run('DELETE FROM retentions WHERE inode = ?', inode);
  }

  putOfSnapshot(volume: number, serial: number, untilNs: string): void {
    this.#statements.run(
      'INSERT OR REPLACE INTO retained_snapshots VALUES (?, ?, ?)',
      ...[volume, serial, BigInt(untilNs)],
    );
  }
}
