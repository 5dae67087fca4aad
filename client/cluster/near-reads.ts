import { HEADER_SERVED } from '../../wire/http-api.ts';
import type { Subject } from '../transport/exchange.ts';
import type { Response } from '../transport/response.ts';
import type { ZonePolicy } from '../transport/zone-policy.ts';

/** A backup that forwards a read requests a read lease, which it usually has by then. */
const FORWARDED_PAUSE_MS = 250;

/** The subject of a file's reads: a replica in the client's zone is asked first, unless the primary is in it, too. */
export class NearReads implements Subject {
  readonly #subject: Subject;
  readonly #zone: ZonePolicy;
  readonly #file: number;
  readonly #replicas: readonly string[];

  constructor(subject: Subject, zone: ZonePolicy, file: number, replicas: readonly string[]) {
    this.#subject = subject;
    this.#zone = zone;
    this.#file = file;
    this.#replicas = replicas;
  }

  get primary(): string | null {
    return this.#subject.primary;
  }

  set primary(server: string | null) {
    this.#subject.primary = server;
  }

  get near(): string | null {
    const { primary } = this.#subject;
    if (primary !== null && this.#zone.isNear(primary)) return null;
    return this.#zone.first(this.#file, this.#replicas);
  }

  received(headers: Response['headers'], server: string | null): void {
    this.#subject.received?.(headers, server);
    if (server !== null && headers[HEADER_SERVED] === 'forwarded')
      this.#zone.forwarded(this.#file, server, FORWARDED_PAUSE_MS);
  }
}
