import type { Logger } from 'pino';
import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import { majority } from '../../base/quorum.ts';
import type { World } from '../../base/world.ts';
import { CreationQuorum, firstEpoch } from '../../replica/create-with-contents.ts';
import type { Epoch } from '../../replica/epoch.ts';
import type { View } from '../../replica/view.ts';
import { viewHasMajority } from '../../replica/view.ts';
import { MalformedError } from '../../wire/bytes.ts';
import { bounded } from '../process/bounded.ts';
import type { FileStore, NewReplica } from '../storage/store.ts';
import type { Transport } from '../transport/transport.ts';
import {
  BACKUP_CREATE_CALL,
  CREATE_CALL,
  decodeCreateAnswer,
  decodeCreateCall,
  encodeCreateAnswer,
  encodeCreateCall,
  SYNCED_CREATE_CALL,
} from './creation-call.ts';
import type { ReplicaHost } from './replica-host.ts';

/** Longest wait for a majority; after that, the client creates the files in two steps. */
const STORE_MS_MAX = 3_000;
/** Without an answer within this time, the members beyond the majority have to store the files, too. */
const EXTRA_WAIT_MS = 200;
const NOTHING = new Uint8Array(0);

/** Why contents are not stored; null if a majority has them. */
export type Refusal = ErrorCode | null;

export interface FirstContentsRequest {
  readonly members: readonly ServerId[];
  readonly objectBytes: number;
  readonly replicas: readonly NewReplica[];
  /** Whether they count as stored only once they survive a loss of power at a majority. */
  readonly synced: boolean;
}

export interface FirstContentsParts extends Pick<Transport, 'call' | 'isConnected'> {
  readonly self: ServerId;
  readonly incarnation: Incarnation;
  readonly world: World;
  readonly log: Logger;
  readonly host: Pick<ReplicaHost, 'createWithContents'>;
  readonly store: Pick<FileStore, 'flush'>;
}

/** Stores whole contents at a majority before the catalog has the files, without a lease (docs/design/mount.md). */
export class FirstContents {
  readonly epoch: Epoch;
  readonly #parts: FirstContentsParts;

  constructor(parts: FirstContentsParts) {
    this.#parts = parts;
    this.epoch = firstEpoch(parts.self, parts.incarnation);
  }

  /** @returns for each file, null as soon as a majority of its replicas has it, or the reason why not */
  async store({ members, objectBytes, replicas, synced }: FirstContentsRequest): Promise<Refusal[]> {
    const { self, world, isConnected } = this.#parts;
    const { epoch } = this;
    const view: View = { number: 1, members };
    const refusals: Refusal[] = replicas.map(() => 'no-majority');
    if (replicas.length === 0 || !viewHasMajority(view, isConnected)) return refusals;
    const call = { epoch, view, objectBytes, replicas: replicas };
    const quorum = new CreationQuorum(view, replicas.length);
    const { promise: stored, resolve: allStored } = Promise.withResolvers<void>();
    const answered = (server: ServerId, answers: readonly Refusal[]): void => {
      quorum.stored(
        server,
        answers.flatMap((refusal, place) => (refusal === null ? [place] : [])),
      );
      for (const [place, refusal] of answers.entries()) if (refusal !== null) refusals[place] = refusal;
      if (quorum.areAllOnMajority) allStored();
    };
    const others = members.filter((member) => member !== self);
    const extra = this.#beyondMajority(view, others);
    const payload = others.length === 0 ? NOTHING : encodeCreateCall(call);
    const ask = async (server: ServerId): Promise<void> => {
      const method = synced ? SYNCED_CREATE_CALL : CREATE_CALL;
      const answer = await this.#parts.call(server, method, payload, STORE_MS_MAX, false);
      answered(server, decodeCreateAnswer(answer, replicas.length));
    };
    for (const server of extra)
      void this.#logged(this.#parts.call(server, BACKUP_CREATE_CALL, payload, STORE_MS_MAX, true));
    const asked = others.filter((server) => !extra.has(server)).map((server) => this.#logged(ask(server)));
    if (members.includes(self)) {
      const storeHere = async (): Promise<void> => {
        // In the next tick: requests that others wait for are sent at the end of this one.
        await world.nextTick();
        const outcomes = await this.#storeHere(replicas, { epoch, view, objectBytes }, synced);
        answered(self, outcomes.map(codeOf));
      };
      asked.push(this.#logged(storeHere()));
    }
    await enoughOrAll(world, stored, asked, extra.size > 0 ? EXTRA_WAIT_MS : STORE_MS_MAX);
    if (!quorum.areAllOnMajority && extra.size > 0) {
      asked.push(...[...extra].map((server) => this.#logged(ask(server))));
      await enoughOrAll(world, stored, asked, STORE_MS_MAX);
    }
    return refusals.map((refusal, place) => (quorum.isOnMajority(place) ? null : refusal));
  }

  async serve(from: ServerId, payload: Uint8Array, synced: boolean): Promise<Uint8Array> {
    const { replicas, ...where } = decodeCreateCall(payload);
    if (where.epoch.server !== from)
      throw new MalformedError(`${from} sent new files with an epoch of ${where.epoch.server}`);
    const outcomes = await this.#storeHere(replicas, where, synced);
    return encodeCreateAnswer(outcomes.map(codeOf));
  }

  async #storeHere(
    replicas: readonly NewReplica[],
    where: Parameters<ReplicaHost['createWithContents']>[1],
    synced: boolean,
  ): Promise<(Error | null)[]> {
    const { host, store } = this.#parts;
    const outcomes = await host.createWithContents(replicas, where);
    if (!synced) return outcomes;
    return Promise.all(
      replicas.map(async ({ file }, place) => {
        const outcome = outcomes[place] ?? null;
        if (outcome !== null) return outcome;
        return store.flush(file).then(
          () => null,
          (error: unknown) => error as Error,
        );
      }),
    );
  }

  #logged(work: Promise<unknown>): Promise<unknown> {
    return work.catch((error: unknown) => {
      if (!(error instanceof ServiceError || error instanceof MalformedError)) throw error;
      this.#parts.log.debug({ err: error }, 'a server did not take files that are created with contents');
    });
  }

  /** @returns the backups beyond the majority, which get the files a moment later; none if a member is unreachable */
  #beyondMajority(view: View, others: readonly ServerId[]): ReadonlySet<ServerId> {
    const { self, isConnected } = this.#parts;
    if (!view.members.includes(self) || !others.every(isConnected)) return new Set();
    const sorted = view.members.toSorted();
    const from = sorted.indexOf(self);
    return new Set([...sorted.slice(from + 1), ...sorted.slice(0, from)].slice(majority(sorted.length) - 1));
  }
}

/** Resolves when `enough` does, when all works have ended, or after `limitMs`. */
async function enoughOrAll(
  world: World,
  enough: Promise<void>,
  works: readonly Promise<unknown>[],
  limitMs: number,
): Promise<void> {
  const tooLate = new Error('too late');
  await bounded(world, Promise.race([enough, Promise.all(works)]), limitMs, () => tooLate).catch(
    (error: unknown) => {
      if (error !== tooLate) throw error;
    },
  );
}

function codeOf(error: Error | null): Refusal {
  if (error === null) return null;
  return error instanceof ServiceError ? error.code : 'storage';
}
