import { createHash } from 'node:crypto';
import type { FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { CatalogNumber } from '../../base/ids.ts';
import type { Command, CommandResults, QueryResults } from '../../wire/catalog-api.ts';
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
  /** An operation from before the outcome was queried; absent if the key is remembered for a time. */
  readonly since?: { readonly catalog: CatalogNumber; readonly seq: number };
}

export type PinnedWrite = CommandResults['pin-write'];

/** Returns what an earlier attempt with this key has pinned; null if the volume's catalog remembers none. */
export async function pinnedWrite(
  gateway: Gateway,
  volume: string,
  key: RequestKey,
): Promise<PinnedWrite | null> {
  const { result } = await outcomeOf(gateway, volume, pinSessionOf(key));
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
async function outcomeOf(
  gateway: Gateway,
  volume: string,
  session: number,
): Promise<QueryResults['outcome']> {
  // A catalog that does not have the volume would remember no attempt: this server's list of catalogs may be outdated.
  const { root } = (await gateway.queryCatalog({ kind: 'volume', name: volume })).volume;
  const catalog = gateway.ofInode(root);
  const query = () => catalog.query({ kind: 'outcome', session });
  return catalog.findDurably(query, ({ result }) => result !== null);
}

/** Returns the session of pins. It is not the key's: `PUT` of a file and of a part may have the same key and URL. */
function pinSessionOf({ session }: RequestKey): number {
  return sessionOf(`pin ${session}`);
}

/** The commands of a request that may have a key, in the catalog of one volume. */
export class KeyedCommands {
  /** Result of the last command that had an effect; null if none had. */
  readonly result: CommandResults[Command['kind']] | null;
  readonly #gateway: Gateway;
  readonly #key: RequestKey | null;
  #number: number;

  private constructor(
    gateway: Gateway,
    key: RequestKey | null,
    { result, number }: { result: CommandResults[Command['kind']] | null; number: number },
  ) {
    this.result = result;
    this.#gateway = gateway;
    this.#key = key;
    this.#number = number;
  }

  static async load(gateway: Gateway, volume: string, key: RequestKey | null): Promise<KeyedCommands> {
    const before = key === null ? { result: null, number: 0 } : await outcomeOf(gateway, volume, key.session);
    return new KeyedCommands(gateway, key, before);
  }

  /** Executes a command durably. A refusal is an answer too: the next attempt takes the next number of the key. */
  durably<C extends Command>(command: C): Promise<CommandResults[C['kind']]> {
    if (this.#key === null) return this.#gateway.durably(command);
    const { session, since } = this.#key;
    const request = { session, number: ++this.#number };
    if (since === undefined) return this.#gateway.durably(command, request);
    const { catalog, seq } = since;
    return this.#gateway.durably(command, { ...request, since: seq }, { catalog });
  }
}
