import type { CatalogNumber, ServerId } from '../../base/ids.ts';
import type { View } from '../../replica/view.ts';
import { decodeCatalogRequest, encodeCatalogRequest } from './catalog-request.ts';
import type { CatalogRows, MembersView } from './catalog-rows.ts';
import type { VolumeCatalogs } from './volume-catalogs.ts';

const OPEN_CALL = 'open-catalog';
const CALL_MS = 10_000;

export interface CatalogMovesParts {
  readonly self: ServerId;
  readonly known: Pick<CatalogRows, 'byNumber'> & {
    noteView(number: CatalogNumber, view: MembersView): void;
  };
  readonly catalogs: Pick<VolumeCatalogs, 'at' | 'openForMove'>;
  call(to: ServerId, method: string, payload: Uint8Array, timeoutMs: number): Promise<Uint8Array>;
  /** At the primary of the catalog, wherever it is. */
  changeMembers(number: CatalogNumber, members: readonly ServerId[]): Promise<View>;
  /** Fetches the newest list of catalogs. */
  refresh(): Promise<void>;
}

/** Moves catalogs of volumes: the new members open replicas first, which fetch the contents. */
export class CatalogMoves {
  readonly #parts: CatalogMovesParts;

  constructor(parts: CatalogMovesParts) {
    this.#parts = parts;
  }

  /** Resolves with the final view. @throws ServiceError, also if a new member cannot open a replica */
  async change(number: CatalogNumber, members: readonly ServerId[]): Promise<View> {
    const { self, known, catalogs, call, changeMembers } = this.#parts;
    const before = catalogs.at(number)?.status().members ?? [];
    const request = encodeCatalogRequest(number);
    for (const member of members) {
      if (before.includes(member)) continue;
      if (member === self) await this.#open(number);
      else await call(member, OPEN_CALL, request, CALL_MS);
    }
    const view = await changeMembers(number, members);
    // Earlier than the list, which the primary's report changes.
    known.noteView(number, view);
    return view;
  }

  /** Answers a call of another server; null: the call is of another subsystem. */
  serve(method: string, payload: Uint8Array): Promise<Uint8Array> | null {
    return method === OPEN_CALL ? this.#serveOpen(payload) : null;
  }

  async #serveOpen(payload: Uint8Array): Promise<Uint8Array> {
    await this.#open(decodeCatalogRequest(payload));
    return new Uint8Array(0);
  }

  async #open(number: CatalogNumber): Promise<void> {
    const { known, catalogs, refresh } = this.#parts;
    if (known.byNumber(number) === null) await refresh();
    await catalogs.openForMove(number);
  }
}
