/** Queries and batches are counted in periods of this length; a decision looks at the present and the last one. */
const PERIOD_MS = 1_000;
/** With fewer queries in that time, they are forwarded to the primary. */
const QUERIES_MIN = 8;
/** Queries for each batch: the read lease makes every batch wait for this server, too. */
const QUERIES_PER_BATCH_MIN = 4;

interface Period {
  readonly beginMs: number;
  readonly beginSeq: number;
  queries: number;
}

/** `low`: few queries; `outnumbered`: many, but too few for the commands; `high`: a read lease pays. */
export type Demand = 'low' | 'outnumbered' | 'high';

/** Decides whether so many queries arrive at a backup that a read lease is worth what it costs the writes. */
export class ReadDemand {
  #period: Period = { beginMs: -Infinity, beginSeq: 0, queries: 0 };
  #last = { queries: 0, batches: 0 };
  #level: Demand = 'low';

  /**
   * Counts a query. Called for each query that a backup could answer.
   * @param nowMs monotonic time
   * @param seq the last operation applied here
   */
  count(nowMs: number, seq: number): Demand {
    const ageMs = nowMs - this.#period.beginMs;
    if (ageMs >= PERIOD_MS) {
      const { queries, beginSeq } = this.#period;
      this.#last = ageMs < 2 * PERIOD_MS ? { queries, batches: seq - beginSeq } : { queries: 0, batches: 0 };
      this.#period = { beginMs: nowMs, beginSeq: seq, queries: 0 };
    }
    this.#period.queries += 1;
    const queries = this.#last.queries + this.#period.queries;
    const batches = this.#last.batches + seq - this.#period.beginSeq;
    if (queries < QUERIES_MIN) this.#level = 'low';
    else this.#level = queries >= QUERIES_PER_BATCH_MIN * batches ? 'high' : 'outnumbered';
    return this.#level;
  }

  /** The demand as of the last query; `low` if that was long ago: then it says nothing about the commands since. */
  levelAt(nowMs: number): Demand {
    return nowMs - this.#period.beginMs < 2 * PERIOD_MS ? this.#level : 'low';
  }
}
