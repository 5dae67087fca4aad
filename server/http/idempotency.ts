import { createHash } from 'node:crypto';
import type { FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { Command, CommandResults, QueryResults } from '../../wire/catalog-api.ts';
import type { NumberedRequest } from '../requests/numbered-requests.ts';
import type { Gateway } from '../routing/gateway.ts';

const HEADER = 'idempotency-key';
const KEY_LENGTH_MAX = 255;

/**
 * Reads `Idempotency-Key`, the client's name of a request. It becomes the session under which the servers remember an
 * operation, which is replicated with it: any server repeats the first answer. Method, target and client belong to it,
 * so that the same key elsewhere names another operation. @throws ServiceError `bad-request`
 */
export function idempotencyKeyOf(request: FastifyRequest): RequestKey | null {
  const key = request.headers[HEADER];
  if (key === undefined) return null;
  if (typeof key !== 'string' || key.length === 0 || key.length > KEY_LENGTH_MAX) {
    throw new ServiceError('bad-request', `Idempotency-Key is one text of 1 to ${KEY_LENGTH_MAX} characters`);
  }
  const { method, originalUrl, principal } = request;
  const whose = principal?.kind === 'client' ? [principal.grant.name] : [];
  const named = JSON.stringify([method, originalUrl, key, ...whose]);
  return { session: sessionOf(named) };
}

/** Returns the session of a name, the same on every server: 53 bits, never 0. */
export function sessionOf(named: string): number {
  const digest = createHash('sha256').update(named).digest();
  return Number(digest.readBigUInt64BE() >> 11n) || 1;
}

export interface RequestKey {
  readonly session: number;
  /** An operation of the catalog from before the outcome was queried; absent if the key is remembered for a time. */
  readonly since?: number | undefined;
}

export type PinnedWrite = CommandResults['pin-write'];

/** Returns what an earlier attempt with this key has pinned; null if the catalog remembers none. */
export async function pinnedWrite(gateway: Gateway, key: RequestKey): Promise<PinnedWrite | null> {
  const { result } = await outcomeOf(gateway, pinSessionOf(key));
  return result as PinnedWrite | null;
}

/**
 * Pins a write before it is sent. A file forgets the sessions of its writes: a later attempt with a `since` of its own
 * would pass as a new request; under the pinned name it is refused. `write.since` must survive a loss of power of all
 * servers.
 * @returns the pin of the first attempt, which survives a loss of power
 */
export async function pinWrite(gateway: Gateway, key: RequestKey, write: PinnedWrite): Promise<PinnedWrite> {
  const command = { kind: 'pin-write', ...write } as const;
  return gateway.durably(command, { session: pinSessionOf(key), number: 1 });
}

/** Finds the outcome of an earlier attempt, and makes it durable: the attempt may have failed before its flush. */
function outcomeOf(gateway: Gateway, session: number): Promise<QueryResults['outcome']> {
  const query = () => gateway.queryCatalog({ kind: 'outcome', session });
  return gateway.findDurably(query, ({ result }) => result !== null);
}

/** Returns the session of pins. It is not the key's: `PUT` of a file and of a part may have the same key and URL. */
function pinSessionOf({ session }: RequestKey): number {
  return sessionOf(`pin ${session}`);
}

/** Numbers the commands of a request with a key. A refusal is an answer too: the next attempt takes the next number. */
export class KeyedCommands {
  /** Result of the last command that had an effect; null if none had. */
  readonly result: CommandResults[Command['kind']] | null;
  readonly #key: RequestKey | null;
  #number: number;

  private constructor(
    key: RequestKey | null,
    { result, number }: { result: CommandResults[Command['kind']] | null; number: number },
  ) {
    this.result = result;
    this.#key = key;
    this.#number = number;
  }

  static async load(gateway: Gateway, key: RequestKey | null): Promise<KeyedCommands> {
    if (key === null) return new KeyedCommands(null, { result: null, number: 0 });
    return new KeyedCommands(key, await outcomeOf(gateway, key.session));
  }

  next(): NumberedRequest | undefined {
    this.#number++;
    return this.#key === null ? undefined : { ...this.#key, number: this.#number };
  }
}
