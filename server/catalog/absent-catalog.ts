import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import type { CatalogService } from '../services.ts';

/** The catalog on a server that is none of its members: everything is asked of them. */
export class AbsentCatalog implements CatalogService {
  readonly #members: readonly ServerId[];

  constructor(members: readonly ServerId[]) {
    this.#members = members;
  }

  execute(): Promise<never> {
    return Promise.reject(this.#elsewhere());
  }

  query(): Promise<never> {
    return Promise.reject(this.#elsewhere());
  }

  flush(): Promise<never> {
    return Promise.reject(this.#elsewhere());
  }

  changeMembers(): Promise<never> {
    return Promise.reject(this.#elsewhere());
  }

  status(): { primary: null; epoch: number; seq: number; members: readonly ServerId[] } {
    return { primary: null, epoch: 0, seq: 0, members: this.#members };
  }

  #elsewhere(): ServiceError {
    return new ServiceError('not-primary', 'This server holds no replica of the catalog');
  }
}
