import type { ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { PlacedFile, PlacedPosition, Query, QueryResults } from '../../wire/catalog-api.ts';
import type { ServerCondition } from './wanted-members.ts';

const PAGE = 500;

export interface FileListsParts {
  readonly world: Pick<World, 'nextTick'>;
  query<Q extends Query>(query: Q): Promise<QueryResults[Q['kind']]>;
}

/** How far a pass over lists of files came, so that the next one continues there; after its end, at the beginning. */
export class ListPosition {
  /** The last inode that was examined of each server's list; infinite at its end. */
  readonly inodes = new Map<string, number>();
  /** The page of miscounted files that is being examined; null for the first. */
  miscounted: PlacedPosition | null = null;
  /** The same of files on servers that are not allowed for them. */
  misplaced: PlacedPosition | null = null;

  /** Whether no page of these lists is left for another pass. */
  get hasNoPageLeft(): boolean {
    return this.miscounted === null && this.misplaced === null;
  }

  reset(): void {
    this.inodes.clear();
    this.miscounted = null;
    this.misplaced = null;
  }
}

/** Lists of files from the catalog, page by page; requests of clients are served between two pages. */
export class FileLists {
  readonly #parts: FileListsParts;

  constructor(parts: FileListsParts) {
    this.#parts = parts;
  }

  /**
   * Files on several servers, the servers in turn; each file once. Begins at `position`, which it moves when the next
   * file is requested.
   */
  async *onAny(servers: readonly string[], position: ListPosition): AsyncGenerator<PlacedFile> {
    const lists = servers.map((server, place) => ({
      earlier: new Set(servers.slice(0, place)),
      files: this.#on(server, position),
    }));
    while (lists.length > 0) {
      for (const list of [...lists]) {
        const next = await list.files.next();
        if (next.done === true) lists.splice(lists.indexOf(list), 1);
        // The list of the earlier server has it, too.
        else if (!next.value.members.some((member) => list.earlier.has(member))) yield next.value;
      }
    }
    position.reset();
  }

  /** Files with a replica on a server. */
  async *#on(server: string, { inodes }: ListPosition): AsyncGenerator<PlacedFile> {
    for (let last = inodes.get(server) ?? 0; last !== Infinity; ) {
      const page: QueryResults['files-on'] = await this.#parts.query({
        kind: 'files-on',
        server,
        after: last,
        countMax: PAGE,
      });
      for (const file of page.files) {
        yield file;
        inodes.set(server, file.inode);
      }
      const end = page.files.at(-1);
      if (!page.more || end === undefined) break;
      last = end.inode;
      await this.#parts.world.nextTick();
    }
    inodes.set(server, Infinity);
  }

  /** Files with too few or too many replicas, from the page at `position`, which it moves from page to page. */
  async *miscounted(
    conditions: readonly ServerCondition[],
    position: ListPosition,
  ): AsyncGenerator<PlacedFile> {
    const servers = conditions.filter(({ state, toBeReplaced }) => state === 'in' && !toBeReplaced).length;
    do {
      const page: QueryResults['files-miscounted'] = await this.#parts.query({
        kind: 'files-miscounted',
        servers,
        away: awayOf(conditions),
        after: position.miscounted,
        countMax: PAGE,
      });
      yield* page.files;
      position.miscounted = page.next;
      await this.#parts.world.nextTick();
    } while (position.miscounted !== null);
  }

  /**
   * Files on servers that are not allowed for them, from the page at `position`, which it moves from page to page. It
   * ends at a page without files: the next call continues there.
   */
  async *misplaced(
    conditions: readonly ServerCondition[],
    position: ListPosition,
  ): AsyncGenerator<PlacedFile> {
    for (let isOver = false; !isOver; ) {
      const page: QueryResults['files-misplaced'] = await this.#parts.query({
        ...{ kind: 'files-misplaced', after: position.misplaced, countMax: PAGE },
        away: awayOf(conditions),
      });
      yield* page.files;
      position.misplaced = page.next;
      isOver = page.next === null || page.files.length === 0;
      await this.#parts.world.nextTick();
    }
  }

  /** Files with a plan for new members. */
  async *planned(): AsyncGenerator<PlacedFile> {
    for (let after: number | null = 0; after !== null; ) {
      const page: QueryResults['plans'] = await this.#parts.query({ kind: 'plans', after, countMax: PAGE });
      yield* page.files;
      after = page.next;
    }
  }
}

/** Servers that take no new replicas, though they are not leaving. */
function awayOf(conditions: readonly ServerCondition[]): ServerId[] {
  return conditions.flatMap(({ id, state, toBeReplaced }) => (state === 'in' && toBeReplaced ? [id] : []));
}
