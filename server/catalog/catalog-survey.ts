import { ServiceError } from '../../base/errors.ts';
import type { CatalogNumber, ServerId } from '../../base/ids.ts';
import { type View, viewHasMajority, viewVoters } from '../../replica/view.ts';
import type { CatalogStore } from '../storage/catalog-store.ts';
import { decodeCatalogRequest, encodeCatalogRequest } from './catalog-request.ts';
import type { CatalogRow } from './catalog-rows.ts';

/** Asks a server for the view of its replica of a catalog; empty if it has none with contents. */
const VIEW_CALL = 'catalog-view';
const CALL_MS = 5_000;

export interface CatalogSurveyParts {
  readonly self: ServerId;
  /** The replica here; null if there is none. */
  storeOf(number: CatalogNumber): Pick<CatalogStore, 'trust' | 'record'> | null;
  call(to: ServerId, method: string, payload: Uint8Array, timeoutMs: number): Promise<Uint8Array>;
}

/** Asks members for their replicas of a volume's catalog: whether enough are left for it to serve. */
export class CatalogSurvey {
  readonly #parts: CatalogSurveyParts;

  constructor(parts: CatalogSurveyParts) {
    this.#parts = parts;
  }

  /** @throws ServiceError `precondition-failed` if a majority of the members answers, and has replicas with contents */
  async assertLost({ number, name, view, members }: CatalogRow): Promise<void> {
    let newest: View = { number: view, members };
    for (;;) {
      const found = new Map<ServerId, View>();
      await Promise.all(
        viewVoters(newest).map(async (server) => {
          const held = await this.#viewAt(server, number);
          if (held !== null) found.set(server, held);
        }),
      );
      if (viewHasMajority(newest, (server) => found.has(server)))
        throw new ServiceError(
          'precondition-failed',
          `The catalog of volume "${name}" is not lost: ${[...found.keys()].sort().join(', ')} have it. ` +
            'Remove the volume as any other',
        );
      // The root catalog may not know the last move yet.
      const later = [...found.values()].reduce((a, b) => (b.number > a.number ? b : a), newest);
      if (later === newest) return;
      newest = later;
    }
  }

  /** Answers a call of another server; null: the call is of another subsystem. */
  serve(method: string, payload: Uint8Array): Promise<Uint8Array> | null {
    return method === VIEW_CALL ? this.#serveView(payload) : null;
  }

  async #serveView(payload: Uint8Array): Promise<Uint8Array> {
    const view = this.#ownView(decodeCatalogRequest(payload));
    return view === null ? new Uint8Array(0) : Buffer.from(JSON.stringify(view));
  }

  #ownView(number: CatalogNumber): View | null {
    const store = this.#parts.storeOf(number);
    return store === null || store.trust() === 'lost' ? null : store.record().view;
  }

  /** @returns null if the server does not answer, or has no replica with contents */
  async #viewAt(server: ServerId, number: CatalogNumber): Promise<View | null> {
    const { self, call } = this.#parts;
    if (server === self) return this.#ownView(number);
    try {
      const answer = await call(server, VIEW_CALL, encodeCatalogRequest(number), CALL_MS);
      return answer.length === 0 ? null : (JSON.parse(Buffer.from(answer).toString('utf8')) as View);
    } catch (error) {
      if (error instanceof ServiceError) return null;
      throw error;
    }
  }
}
