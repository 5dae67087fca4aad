import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { CatalogNumber, FileId } from '../../base/ids.ts';
import type { InodeCatalogs } from '../../base/inode-catalogs.ts';
import type { World } from '../../base/world.ts';
import type { Query, QueryResults } from '../../wire/catalog-api.ts';
import { WokenWork } from '../process/woken-work.ts';
import type { FileStore } from '../storage/store.ts';
import { filesOfCatalog } from './catalog-files.ts';
import type { DepartedFiles } from './departed-files.ts';
import { UnneededReplicas, type UnneededReplicasParts } from './unneeded-replicas.ts';

const RETRY_MS = 60_000;

export interface RemovedCatalogsParts extends Omit<UnneededReplicasParts, 'graceMs' | 'store' | 'query'> {
  readonly world: Pick<World, 'after' | 'nextTick'>;
  readonly log: Logger;
  readonly store: Pick<FileStore, 'list' | 'record'>;
  readonly departed: Pick<DepartedFiles, 'add' | 'files' | 'forget'>;
  /** The catalogs that the root catalog's flushed list says are removed. */
  removed(): readonly CatalogNumber[];
  /** Which catalogs have files, by the same list. */
  inodeCatalogs(): InodeCatalogs;
  /** Called when nothing of the catalog's files is here any more. */
  forget(catalog: CatalogNumber): void;
}

/**
 * Removes all replicas of files of removed catalogs. A catalog is removed only when it has no files left, and is not
 * there any more to say so of single files; a server that was away keeps replicas until it learns of the removal.
 */
export class RemovedCatalogs {
  readonly #parts: RemovedCatalogsParts;
  readonly #unneeded: UnneededReplicas;
  readonly #work: WokenWork;
  /** Files of which a failed removal has left something. */
  readonly #unfinished = new Set<FileId>();
  readonly #forgotten = new Set<CatalogNumber>();

  constructor(parts: RemovedCatalogsParts) {
    this.#parts = parts;
    this.#unneeded = new UnneededReplicas({ ...parts, graceMs: () => 0, query: placedNowhere });
    this.#work = new WokenWork({
      world: parts.world,
      retryMs: RETRY_MS,
      work: () => this.#removeAll(),
      failed: (error) =>
        parts.log.warn({ err: error }, 'cannot remove all replicas of a removed volume yet; trying again'),
    });
  }

  /** There may be another removed catalog. */
  wake(): void {
    this.#work.wake();
  }

  close(): Promise<void> {
    this.#work.close();
    return this.#work.ended();
  }

  async #removeAll(): Promise<void> {
    for (const catalog of this.#parts.removed()) {
      if (this.#forgotten.has(catalog)) continue;
      await this.#remove(catalog);
      this.#parts.forget(catalog);
      this.#forgotten.add(catalog);
    }
  }

  /** @throws ServiceError if something is left */
  async #remove(catalog: CatalogNumber): Promise<void> {
    const { departed } = this.#parts;
    await this.#unneeded.compare(this.#pages(catalog), this.#unfinished);
    const left = [...this.#unfinished].filter((file) => this.#catalogOf(file) === catalog);
    if (left.length > 0)
      throw new ServiceError('storage', `${left.length} replicas of catalog ${catalog} could not be removed`);
    await departed.forget(departed.files().filter((file) => this.#catalogOf(file) === catalog));
  }

  *#pages(catalog: CatalogNumber): Generator<readonly FileId[]> {
    const { store, inodeCatalogs } = this.#parts;
    const unfinished = [...this.#unfinished].filter((file) => this.#catalogOf(file) === catalog);
    for (const file of unfinished) this.#unfinished.delete(file);
    yield unfinished;
    for (let after: FileId | null = 0 as FileId; after !== null; ) {
      const { files, next } = filesOfCatalog(store, inodeCatalogs(), catalog, after);
      yield files;
      after = next;
    }
  }

  #catalogOf(file: FileId): CatalogNumber {
    return this.#parts.inodeCatalogs().catalogOf(file);
  }
}

/** The answer of a removed catalog to the only query that `UnneededReplicas` makes. */
async function placedNowhere<Q extends Query>(_query: Q): Promise<QueryResults[Q['kind']]> {
  const answer: QueryResults['placed'] = { files: [], reserved: [] };
  return answer as QueryResults[Q['kind']];
}
