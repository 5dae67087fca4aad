/**
 * The seal of a file at one server of a system simulation, in the steps in which a file's primary goes about it: changes
 * under way end, the first seal, a flush, the second. What a sealed file still lets through the servers' own code says.
 */
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { RequestId } from '../../replica/operation.ts';
import type { ReplicaRecord } from '../../replica/record.ts';
import type { SessionAnswer } from '../../replica/sessions.ts';
import { assertDoneBefore, finalAttributes } from '../../server/file/sealed-file.ts';
import type { FileContents } from './system-file.ts';

/** How often something happened that runs with seals are for. */
export interface SealCounts {
  /** Reads that a replica answered because it has the second seal, and those that nothing else would have allowed it. */
  finalReads: number;
  finalReadsAlone: number;
  /** Requests of before the seal that were asked again after it, and new ones that were refused. */
  sealedRetries: number;
  sealedRefusals: number;
  /** Between the two seals: losses of power, of all machines at once, and ends of primaries. */
  sealPowerLosses: number;
  sealAllPowerLosses: number;
  sealCrashes: number;
}

export function sealCountsNone(): SealCounts {
  return {
    finalReads: 0,
    finalReadsAlone: 0,
    sealedRetries: 0,
    sealedRefusals: 0,
    sealPowerLosses: 0,
    sealAllPowerLosses: 0,
    sealCrashes: 0,
  };
}

/** What a server has on its disk, as a store would tell it. */
export interface SealedStore {
  readonly record: ReplicaRecord;
  readonly contents: FileContents;
}

function storeOf({ record, contents }: SealedStore) {
  return { record: () => record, attributes: () => contents.attributes };
}

/** Whether whoever has this on its disk answers reads by itself, for ever. */
export function isFinal(file: FileId, store: SealedStore): boolean {
  return finalAttributes(storeOf(store), file) !== null;
}

/** @returns what became of a request to change a sealed file; null where it was not done, and never will be */
export function doneBefore(
  file: FileId,
  store: SealedStore,
  request: RequestId,
): Exclude<SessionAnswer, { kind: 'fresh' }> | null {
  try {
    return assertDoneBefore(storeOf(store), file, request);
  } catch (error) {
    if (error instanceof ServiceError && error.code === 'sealed') return null;
    throw error;
  }
}

/** What the seal's course needs of the server. */
export interface SealParts {
  seal(): 'open' | 'sealed' | 'final';
  /** @param done told whether it was committed */
  submit(final: boolean, done: (committed: boolean) => void): void;
  flush(done: (flushed: boolean) => void): void;
}

/** What a primary knows of a file's seal, for as long as its epoch lasts. */
export class SealCourse {
  readonly #parts: SealParts;
  /** Whether new changes take a place in the order. `sealing`: they wait until it is known. */
  #admits: 'all' | 'waiting' | 'none' = 'none';
  #inFlight = 0;
  #whenIdle: (() => void) | null = null;
  #running = false;
  #over = false;
  readonly #changes: ((sealed: boolean | null) => void)[] = [];
  readonly #asked: ((isFinal: boolean) => void)[] = [];

  constructor(parts: SealParts) {
    this.#parts = parts;
    this.#admits = parts.seal() === 'open' ? 'all' : 'none';
  }

  /** A change wants a place. @param go told whether the file is sealed; null where that did not come to be known */
  admit(go: (sealed: boolean | null) => void): void {
    if (this.#admits === 'waiting') this.#changes.push(go);
    else go(this.#admits === 'none');
  }

  began(): void {
    this.#inFlight++;
  }

  /** A change came to its end. */
  ended(): void {
    this.#inFlight--;
    if (this.#inFlight > 0) return;
    const go = this.#whenIdle;
    this.#whenIdle = null;
    go?.();
  }

  /** Seals the file, or goes on with what is missing. @param done told whether the second seal is committed */
  run(done: (isFinal: boolean) => void): void {
    this.#asked.push(done);
    if (this.#running) return;
    this.#running = true;
    if (this.#admits === 'none') {
      this.#flush();
      return;
    }
    this.#admits = 'waiting';
    if (this.#inFlight === 0) this.#first();
    else this.#whenIdle = () => this.#first();
  }

  #first(): void {
    this.#parts.submit(false, (committed) => {
      if (this.#over) return;
      this.#admits = committed ? 'none' : 'all';
      for (const go of this.#changes.splice(0)) go(committed ? true : null);
      if (committed) this.#flush();
      else this.#end(false);
    });
  }

  /** Only what no loss of power can take back may be told to be final. */
  #flush(): void {
    this.#parts.flush((flushed) => {
      if (this.#over) return;
      if (!flushed) this.#end(false);
      else if (this.#parts.seal() === 'final') this.#end(true);
      else this.#parts.submit(true, (committed) => this.#end(committed));
    });
  }

  #end(isFinal: boolean): void {
    if (this.#over) return;
    this.#running = false;
    for (const done of this.#asked.splice(0)) done(isFinal);
  }

  /** The epoch is led from here no more. */
  close(): void {
    this.#over = true;
    for (const go of this.#changes.splice(0)) go(null);
    for (const done of this.#asked.splice(0)) done(false);
  }
}
