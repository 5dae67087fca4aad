import type { Logger } from 'pino';
import { LruMap } from '../../base/bounded-map.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import { type View, viewMembersFormat, viewsConflict } from '../../replica/view.ts';
import type { ViewConflict } from '../../wire/http-api.ts';

const FILES_MAX = 1_000;

export interface ViewConflictsParts {
  readonly log: Logger;
  isHere(file: FileId): boolean;
  found(file: FileId, what: string): void;
}

/**
 * Files with a replica here, for whose view number another server, or the catalog, has other members. Each set may have
 * a primary and a history of its own, so an operator has to decide; until then `status` is degraded.
 */
export class ViewConflicts {
  readonly #parts: ViewConflictsParts;
  readonly #found = new LruMap<FileId, string>(FILES_MAX);

  constructor(parts: ViewConflictsParts) {
    this.#parts = parts;
  }

  get current(): readonly ViewConflict[] {
    return this.#found
      .entries()
      .flatMap(([file, what]) => (this.#parts.isHere(file) ? [{ file, what }] : []));
  }

  report(file: FileId, what: string): void {
    if (this.#found.has(file)) return;
    this.#found.set(file, what);
    this.#parts.log.error({ file, what }, 'a file has two member sets for one view: run "leasehold check"');
    this.#parts.found(file, what);
  }

  compare(file: FileId, here: View, there: View, where: ServerId | 'the catalog'): boolean {
    if (!viewsConflict(here, there)) return false;
    const [own, other] = [viewMembersFormat(here), viewMembersFormat(there)];
    this.report(file, `view ${here.number} has ${own} here and ${other} at ${where}`);
    return true;
  }
}
