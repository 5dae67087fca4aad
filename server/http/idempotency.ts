import { createHash } from 'node:crypto';
import type { FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { Command, CommandResults, QueryResults } from '../../wire/catalog-api.ts';
import type { Gateway } from '../gateway.ts';
import type { RequestName } from './request-names.ts';

const HEADER = 'idempotency-key';
const KEY_LENGTH_MAX = 255;

/**
 * `Idempotency-Key`: the client's own name of a request, so that it may be sent again. It becomes the name by which the
 * servers remember an operation, which is replicated with it: whoever is asked after a failure answers what was answered.
 * Method and target are part of it, and who asks: the same key with another request, or of somebody else, names another operation.
 *
 * @returns a name for one operation; null where the client gave no key
 * @throws ServiceError `bad-request`
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

/** @returns the session of that name: every server finds the same. 53 bits, and never 0 */
export function sessionOf(named: string): number {
  const digest = createHash('sha256').update(named).digest();
  return Number(digest.readBigUInt64BE() >> 11n) || 1;
}

/** The name under which any server finds what became of a request. */
export interface RequestKey {
  readonly session: number;
  /** An operation of the catalog from before the request's outcome was looked for; absent where the key is remembered for a time. */
  readonly since?: number | undefined;
}

/** What the first attempt of a write under a key named, for all attempts. */
export type PinnedWrite = CommandResults['pin-write'];

/** @returns what an earlier attempt under this key has pinned; null where none has, as far as the catalog remembers */
export async function pinnedWrite(gateway: Gateway, key: RequestKey): Promise<PinnedWrite | null> {
  const { result } = await outcomeOf(gateway, pinSessionOf(key));
  return result as PinnedWrite | null;
}

/**
 * Pins a write before it is sent. A file forgets the sessions of its writes: with a `since` of its own a later attempt would be taken for a
 * new request, with the name of the first one it is refused.
 *
 * @param write `since` must be of an operation that a loss of power of all servers does not take back
 * @returns what holds for all attempts: another attempt may have been faster. It survives a loss of power
 */
export async function pinWrite(gateway: Gateway, key: RequestKey, write: PinnedWrite): Promise<PinnedWrite> {
  const command = { kind: 'pin-write', ...write } as const;
  return gateway.durably(command, { session: pinSessionOf(key), number: 1 });
}

/** @returns what an earlier attempt came to, which survives a loss of power: the attempt may have failed before its flush */
function outcomeOf(gateway: Gateway, session: number): Promise<QueryResults['outcome']> {
  const look = () => gateway.queryCatalog({ kind: 'outcome', session });
  return gateway.findDurably(look, ({ result }) => result !== null);
}

/** Of the pin alone: `PUT` of a whole file may have the same key and URL as `PUT` of a part. */
function pinSessionOf({ session }: RequestKey): number {
  return sessionOf(`pin ${session}`);
}

/**
 * The commands that the catalog executes for a request with a key. A refusal is an answer like any other, so whoever tries
 * again under the same key, or looks at a condition anew, asks under the next number.
 */
export class KeyedCommands {
  /** What the last command has done; null where there is none that did anything. */
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

  /** @param key of the request; null where it has none, and its commands names of the server's own */
  static async of(gateway: Gateway, key: RequestKey | null): Promise<KeyedCommands> {
    if (key === null) return new KeyedCommands(null, { result: null, number: 0 });
    return new KeyedCommands(key, await outcomeOf(gateway, key.session));
  }

  /** The name of the next command. */
  next(): RequestName | undefined {
    this.#number++;
    return this.#key === null ? undefined : { ...this.#key, number: this.#number };
  }
}
